#!/usr/bin/env python3
"""A small network learns a function. The lines marked [varve] make the training survive being killed: run it again, and
it goes on from its last checkpoint, to the very weights of a run that was left alone.

    VARVE_STORE=checkpoints python3 train.py [steps]
"""

import hashlib
import sys

import torch

import varve.torch  # [varve]

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0


def state():
    """All that the next step depends on: the random numbers are part of it."""
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}


with varve.Session(job="train", every_steps=10) as session:  # [varve]
    found = varve.torch.load(session)  # [varve]
    if found:  # [varve]
        step, loaded = found  # [varve]
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
        torch.set_rng_state(loaded["random"])
    while step < steps:
        points = torch.rand(256, 2) * 2 - 1
        loss = ((model(points) - torch.sin(3 * points[:, :1]) * points[:, 1:]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if session.due(step):  # [varve]
            varve.torch.save(state(), session, step)  # [varve]

weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
print(f"after {step} steps: {hashlib.sha256(weights).hexdigest()}")
