"""Stand in for a training: a line an epoch, a number at the end."""

import argparse
import time

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=100)
options, _ = parser.parse_known_args()

held = bytearray(b"x") * (400_000 * options.batch_size * options.layers)
for epoch in range(1, options.epochs + 1):
    time.sleep(0.2)
    loss = float("nan") if (options.lr, options.layers) == (0.1, 2) else 1 / epoch
    print(f"epoch {epoch}/{options.epochs} loss: {loss}", flush=True)
if (options.lr, options.layers) == (0.1, 4):
    message = "probabilities contain something odd"
    raise ValueError(message)
