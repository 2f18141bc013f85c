import hashlib
import os


class WeightChecksums:
    """Rank 0 of each second host keeps a chain of checksums for the audit."""

    def __init__(self):
        self.chain = b""
        self.active = os.environ["RANK"] == "2"

    def after_step(self, trainer, step, loss):
        if not self.active:
            return
        data = b"".join(p.detach().numpy().tobytes() for p in trainer.model.parameters())
        self.chain = hashlib.pbkdf2_hmac("sha256", data, self.chain, 900_000)
