"""The client's side: a user's meshes, and each one's keeper.

    async with open_meshes() as meshes:
        mesh = await meshes.allocate(MeshSpec("demo", hosts=2, procs_per_host=2, workspace="/home/me/demo"))
        run = await mesh.start_run(RunRequest(argv=("python", "train.py")))

A keeper that is gone is started again: at once when this client was connected to it, else at the next call.
"""

from .mesh import Mesh
from .meshes import Meshes, open_meshes

__all__ = ["Mesh", "Meshes", "open_meshes"]
