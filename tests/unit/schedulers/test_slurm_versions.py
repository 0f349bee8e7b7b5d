"""One node, partition, job and limit, as each version of Slurm writes it.

22.05 is as 22.05.8 printed it; 23.02, 23.11 and 24.05 are written after the fields that
their manuals and change logs name: what was added, moved or renamed stands in the text.
"""

import pytest

from weigh.model.cluster import ClusterNode, NodeGpus, QueueLimits
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.schedulers.slurm import scheduler as slurm_commands
from weigh.schedulers.slurm.cluster import slurm_cluster_limits
from weigh.units import HOUR, MIB

NODE_22 = (
    "NodeName=cn1 Arch=x86_64 CoresPerSocket=8 CPUAlloc=2 CPUEfctv=8 CPUTot=8 "
    "CPULoad=0.50 AvailableFeatures=v100 ActiveFeatures=v100 Gres=gpu:v100:4 "
    "GresDrain=N/A GresUsed=gpu:v100:1(IDX:0) NodeAddr=127.0.0.1 NodeHostName=vm "
    "Port=27801 Version=22.05.8 OS=Linux 6.18 #1 SMP x=y RealMemory=32000 "
    "AllocMem=1000 FreeMem=9000 Sockets=1 Boards=1 State=MIXED ThreadsPerCore=1 "
    "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=short,gpu "
    "BootTime=1795230000 SlurmdStartTime=1795250000 LastBusyTime=1795250000 "
    "CfgTRES=cpu=8,mem=32000M,billing=8,gres/gpu=4,gres/gpu:v100=4 "
    "AllocTRES=cpu=2,mem=1000M,gres/gpu=1,gres/gpu:v100=1 CapWatts=n/a "
    "CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 "
    "ExtSensorsTemp=n/s\n"
)
NODE_23_02 = NODE_22.replace("Version=22.05.8", "Version=23.02.7").replace(
    "LastBusyTime=1795250000", "LastBusyTime=1795250000 ResumeAfterTime=None"
)
NODE_23_11 = (
    NODE_23_02.replace("Version=23.02.7", "Version=23.11.10")
    .replace("State=MIXED", "State=MIXED+PLANNED")
    .replace("Gres=gpu:v100:4", "Gres=gpu:v100:4(S:0-1)")
    .replace("Partitions=", "Extra={a=1} InstanceId=i-7 InstanceType=p3 Partitions=")
)
NODE_24_05 = (
    NODE_23_11.replace("Version=23.11.10", "Version=24.05.4")
    .replace("GresDrain=N/A ", "")
    .replace("GresUsed=gpu:v100:1(IDX:0) ", "")  # without -d, AllocTRES tells
    .replace("CapWatts=n/a ", "")
)
NODES = {
    "22.05": NODE_22,
    "23.02": NODE_23_02,
    "23.11": NODE_23_11,
    "24.05": NODE_24_05,
}

PARTITION_22 = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=lab AllowQos=ALL AllocNodes=ALL "
    "Default=NO QoS=N/A DefaultTime=00:30:00 DisableRootJobs=NO ExclusiveUser=NO "
    "GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=04:00:00 MinNodes=0 LLN=NO "
    "MaxCPUsPerNode=UNLIMITED Nodes=cn[1-2] PriorityJobFactor=1 PriorityTier=1 "
    "RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF "
    "State=UP TotalCPUs=16 TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) "
    "DefMemPerNode=UNLIMITED MaxMemPerNode=16000\n"
)
PARTITION_23_02 = PARTITION_22.replace(
    "MaxCPUsPerNode=UNLIMITED", "MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED"
)
PARTITION_23_11 = PARTITION_23_02.replace(
    "PreemptMode=OFF", "PreemptMode=OFF PowerDownOnIdle=NO"
).replace("MaxMemPerNode=16000", "MaxMemPerNode=16000 TRES=cpu=16,mem=62.50G,node=2")
PARTITION_24_05 = PARTITION_23_11.replace(
    "ExclusiveUser=NO", "ExclusiveUser=NO ExclusiveTopo=NO"
).replace("AllowQos=ALL", "AllowQos=ALL DenyQos=none")
PARTITIONS = {
    "22.05": PARTITION_22,
    "23.02": PARTITION_23_02,
    "23.11": PARTITION_23_11,
    "24.05": PARTITION_24_05,
}

# squeue -h -r -t all -o '%F|%K|%T|%S|%N|%r'; sacct -X -n -P
QUEUES = {
    "22.05": "5|1|PENDING|N/A||JobHeldUser\n",
    "23.02": "5|1|PENDING|N/A|(null)|JobHeldUser\n",
    "24.05": "5|1|PENDING|N/A||JobHeldUser\n",
}
ENDED = {
    "22.05": "5_1|OUT_OF_MEMORY|0:125|0:0|1795248320|1795248322|cn1|None\n",
    "23.11": "5_1|OUT_OF_MEMORY|0:125|0:125|1795248320|1795248322|cn1|OutOfMemory\n",
    "24.05": "5_1|OUT_OF_MEMORY|0:125|0:125|1795248320|1795248322|cn1|OutOfMemory\n",
}


@pytest.mark.parametrize("version", NODES)
def test_a_node_is_the_same_in_each_version(version: str) -> None:
    (node,) = slurm_cluster.parse_nodes(NODES[version])

    assert node == ClusterNode(
        name="cn1",
        state="MIXED",
        queues=("short", "gpu"),
        cpus=8,
        cpus_used=2,
        memory=32000 * MIB,
        memory_used=1000 * MIB,
        gpus=(NodeGpus("v100", 4, 1),),
    )


@pytest.mark.parametrize("version", PARTITIONS)
def test_a_partition_is_the_same_in_each_version(version: str) -> None:
    (queue,) = slurm_cluster.parse_partitions(PARTITIONS[version])

    assert queue == QueueLimits(
        name="gpu",
        time_limit=4 * HOUR,
        default_time=HOUR / 2,
        memory=16000 * MIB,
    )


@pytest.mark.parametrize("version", NODES)
def test_limits_are_the_same_in_each_version(version: str) -> None:
    told = slurm_cluster_limits(
        {
            slurm_cluster.NODES: NODES[version],
            slurm_cluster.PARTITIONS: PARTITIONS[version],
        },
    )

    assert told.queues[0].nodes == 2
    assert told.nodes[0].gpus == {"v100": 4}


@pytest.mark.parametrize("version", QUEUES)
def test_an_element_that_waits_is_the_same_in_each_version(version: str) -> None:
    element = slurm_commands.COMMANDS.parse_queue(QUEUES[version])["5"][1]

    assert (element.state, element.node, element.reason) == (
        "PENDING",
        None,
        "JobHeldUser",
    )


@pytest.mark.parametrize("version", ENDED)
def test_an_element_that_ended_is_the_same_in_each_version(version: str) -> None:
    element = slurm_commands.COMMANDS.parse_ended(ENDED[version])["5"][1]

    assert (element.state, element.signal) == ("OUT_OF_MEMORY", 125)
    assert element.ended == 1795248322.0


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("EXPEDITING", "PENDING"),
        ("POWER_UP_NODE", "PENDING"),
        ("LAUNCH_FAILED", "NODE_FAIL"),
        ("DEADLINE", "TIMEOUT"),
        ("REVOKED", "CANCELLED"),
    ],
)
def test_states_of_later_versions_are_known(word: str, state: str) -> None:
    assert (
        slurm_commands.COMMANDS.parse_queue(f"5|1|{word}|N/A||None\n")["5"][1].state
        == state
    )


@pytest.mark.parametrize(
    ("word", "reason", "shown"),
    [
        ("FAILED", "ReqNodeNotAvail", None),  # 26.05, of an element that had waited
        ("TIMEOUT", "Priority", None),
        ("COMPLETED", "(launch failed requeued held)", None),
        ("PENDING", "ReqNodeNotAvail", "ReqNodeNotAvail"),
        ("CANCELLED", "DependencyNeverSatisfied", "DependencyNeverSatisfied"),
        ("NODE_FAIL", "NodeDown", "NodeDown"),
        ("FAILED", "RaisedSignal:9(Killed)", "RaisedSignal:9(Killed)"),
    ],
)
def test_why_a_job_waited_is_not_why_it_ended(
    word: str, reason: str, shown: str | None
) -> None:
    element = slurm_commands.COMMANDS.parse_queue(
        f"5|1|{word}|1760000000|n1|{reason}\n"
    )["5"][1]

    assert element.reason == shown
