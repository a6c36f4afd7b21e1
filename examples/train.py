"""A stand-in for training: prints its progress, writes a result. Standard library only."""

import argparse
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()

print(f"training with lr={options.lr} in {os.path.basename(os.getcwd())}/", flush=True)
loss = 1.0
for epoch in range(1, options.epochs + 1):
    time.sleep(0.2)
    loss *= 1 - options.lr
    print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
print("the last word goes to stderr", file=sys.stderr)
with open("model.txt", "w") as file:
    file.write(f"lr={options.lr} loss={loss:.4f}\n")
