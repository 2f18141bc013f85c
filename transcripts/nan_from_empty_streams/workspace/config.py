from dataclasses import dataclass


@dataclass
class Config:
    steps: int = 300
    batch_size: int = 32
    max_len: int = 24
    features: int = 12
    hidden: int = 48
    lr: float = 1e-2
    warmup: int = 10
    weight_decay: float = 1e-4
    grad_clip: float = 5.0
    seed: int = 1234
    log_every: int = 20
