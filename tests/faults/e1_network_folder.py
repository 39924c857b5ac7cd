"""E1: processes share a cache folder on a network: folders stay busy, moved files appear late."""

import errno

from jitwarm.faults import Expected, Fault, FolderStore


class NetworkFolder(FolderStore):
    """What it moved cannot be read at once, and a folder cannot be removed."""

    def read(self, name):
        if name == "entry" and "moved" in vars(self):
            raise FileNotFoundError(errno.ENOENT, "not there yet")
        return super().read(name)

    def move(self, source, target):
        super().move(source, target)
        self.moved = True

    def remove_folder(self, name):
        raise OSError(errno.EBUSY, "busy")


FAULT = Fault(
    "eight processes on a network file system",
    store=NetworkFolder,
    processes=8,
    expected=[
        Expected("STORE-UNSAFE", field="remove_folder", seen="EBUSY", count=1,
                 message="8 of 8", kernel="NetworkFolder"),
        Expected("STORE-UNSAFE", field="read", seen="FileNotFoundError", count=1),
    ],
)  # fmt: skip
TWIN = Fault("eight processes on a local disk", store=FolderStore, processes=8)
