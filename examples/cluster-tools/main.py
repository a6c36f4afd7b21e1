"""A small training to submit: submit -c=cedar.json python main.py"""

import os
import time

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    SummaryWriter = None

print("training on", os.uname().nodename, flush=True)
writer = SummaryWriter("runs") if SummaryWriter else None
for epoch in range(1, 21):
    loss = 0.9**epoch
    print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    if writer:
        writer.add_scalar("loss", loss, epoch)
        writer.flush()
    time.sleep(1)
with open("model.txt", "w") as model:
    model.write(f"loss={loss:.4f}\n")
