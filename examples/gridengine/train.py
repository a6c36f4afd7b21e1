#!/usr/bin/env python3
"""Fit a line by gradient descent; checkpoints, statistics and TensorBoard's summaries go to
$OUTPUT_DIR/<time of the start>, and the data comes from $MLP_DATA_DIR, if that is set.

    tow run -c msc -e OUTPUT_DIR='$HOME/experiments' --back '$OUTPUT_DIR' \\
        --service tensorboard --logdir OUTPUT_DIR python3 train.py
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
PAUSE_S = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1


def data() -> tuple[np.ndarray, np.ndarray]:
    file = Path(os.environ.get("MLP_DATA_DIR", "."), "points.csv")
    if file.exists():
        points = np.loadtxt(file, delimiter=",")
        return points[:, 0], points[:, 1]
    x = np.linspace(-1, 1, 100)
    return x, 3 * x + 1


def main() -> None:
    folder = Path(os.environ["OUTPUT_DIR"], time.strftime("%Y-%m-%d_%H-%M-%S"))
    folder.mkdir(parents=True)
    writer = EventFileWriter(str(folder))
    x, y = data()
    slope, offset, losses = 0.0, 0.0, []
    for epoch in range(1, EPOCHS + 1):
        error = slope * x + offset - y
        slope -= 0.5 * float(np.mean(error * x))
        offset -= 0.5 * float(np.mean(error))
        losses.append(float(np.mean(error**2)))
        value = Summary.Value(tag="loss", simple_value=losses[-1])
        writer.add_event(Event(step=epoch, wall_time=time.time(), summary=Summary(value=[value])))
        writer.flush()
        np.savez(folder / "checkpoint.npz", slope=slope, offset=offset, epoch=epoch)
        print(f"epoch {epoch}: loss {losses[-1]:.4f}", flush=True)
        time.sleep(PAUSE_S)
    np.savez(folder / "statistics.npz", loss=np.array(losses))
    writer.close()


if __name__ == "__main__":
    main()
