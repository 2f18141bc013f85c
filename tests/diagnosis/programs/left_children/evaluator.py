"""Training with an evaluator in a process of its own."""

import logging
import multiprocessing
import os
import time

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")


def evaluate(jobs, ready):
    ready.set()
    while True:
        step = jobs.get()
        logging.info("evaluation of step %d", step)


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        context = multiprocessing.get_context("spawn")
        self.jobs = context.Queue()
        self.ready = context.Event()
        self.evaluator = context.Process(target=evaluate, args=(self.jobs, self.ready), name="evaluator")

    def run(self):
        if self.rank == 1:
            self.evaluator.start()
            self.ready.wait()
        dist.init_process_group("gloo")
        x = torch.ones(4)
        for step in range(30):
            dist.all_reduce(x)
            x /= dist.get_world_size()
            if self.rank == 1 and step % 10 == 0:
                self.jobs.put(step)
            time.sleep(0.01)
        dist.destroy_process_group()
        logging.info("rank %d: all steps done, bye", self.rank)


if __name__ == "__main__":
    trainer = Trainer(int(os.environ["RANK"]))
    trainer.run()
