"""``qstat -j`` read back, as captured from 8.1.9: what a job was taken to ask for."""

from weigh.schedulers.gridengine.scheduler import parse_qstat_job
from weigh.units import GIB

CAPTURED = """\
==============================================================
job_number:                 1
exec_file:                  job_scripts/1
submission_time:            Sat Nov 21 10:00:11 2026
owner:                      root
sge_o_host:                 localhost
account:                    sge
merge:                      y
hard resource_list:         h_vmem=2G,h_rt=300,ngpus=1,gpu_type=v100
mail_list:                  root@vm
notify:                     FALSE
job_name:                   a7.sh
hard_queue_list:            short
shell_list:                 NONE:/bin/bash
env_list:                   TERM=NONE
script_file:                a7.sh
parallel environment:  smp range: 2
job-array tasks:            1-5:1
maximum concurrency:        2
scheduling info:            Job is in hold state
"""


def test_what_was_requested_is_read() -> None:
    told = parse_qstat_job(CAPTURED)

    assert told is not None
    assert (told.virtual_memory, told.cpus, told.gpus) == (4 * GIB, 2, 1)
    assert told.gpu_types == ("v100",)
    assert (told.time_limit, told.queue) == (300, "short")
    assert (told.elements, told.throttle) == (5, 2)


def test_a_job_that_requests_nothing_has_one_slot() -> None:
    told = parse_qstat_job("job_number:                 7\n")

    assert told is not None
    assert (told.cpus, told.elements, told.queue) == (1, None, None)


def test_gpus_under_a_name_of_the_site_s_own_are_not_counted_as_none() -> None:
    told = parse_qstat_job(CAPTURED.replace("ngpus=1", "tesla=1"))

    assert told is not None
    assert told.gpus is None


def test_a_job_that_is_not_there_reports_nothing() -> None:
    assert parse_qstat_job("Following jobs do not exist: \n999\n") is None
