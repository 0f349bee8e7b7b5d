"""Train the tagger of examples/gpu_tagging in several processes, by torch's DDP.

    torchrun --nproc_per_node 2 train.py alice.txt

Each rank learns from its share of the paragraphs; gloo adds the gradients up.
"""

import os
import sys

import torch
from learn import Tagger, learn, read, vocabulary
from torch import distributed, nn

import weigh

LEARN_FROM = 128  # paragraphs


def main() -> None:
    """Join the others, train, say how far the ranks agree."""
    (text,) = sys.argv[1:]
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(1)
    paragraphs = read(text)
    with weigh.phase("load model"):
        model = nn.parallel.DistributedDataParallel(Tagger())
    with weigh.phase("train"):
        learn(model, paragraphs[rank:LEARN_FROM:ranks], vocabulary(paragraphs))
    total = torch.tensor([sum(float(p.detach().sum()) for p in model.parameters())])
    others = [torch.zeros_like(total) for _ in range(ranks)]
    distributed.all_gather(others, total)
    if rank == 0:
        same = all(torch.equal(one, total) for one in others)
        print(f"{ranks} ranks, the same weights: {same}")
        print(f"they met at port {os.environ['MASTER_PORT']}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
