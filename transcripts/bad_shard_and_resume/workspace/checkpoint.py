import os

import torch


def save(path, step, model, opt, sched, reader):
    state = {"step": step, "model": model.state_dict(), "opt": opt.state_dict(),
             "sched": sched.state_dict(), "reader": reader.state_dict()}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def load(path, model, opt, sched, reader):
    """Returns the number of steps done."""
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"], strict=False)
    opt.load_state_dict(state["opt"])
    sched.load_state_dict(state["sched"])
    reader.load_state_dict(state["reader"])
    return state["step"]
