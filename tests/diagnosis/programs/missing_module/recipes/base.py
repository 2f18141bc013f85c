def schedule(step, total, lr=1e-2):
    return lr * (1 - step / total)
