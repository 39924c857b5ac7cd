"""A store that writes into place instead of moving: readers meet half an entry."""

from jitwarm.faults import Expected, Fault, FolderStore


class InPlace(FolderStore):
    def move(self, source, target):
        data = self.read(source)
        (self.folder / target).write_bytes(data[: len(data) // 2])
        (self.folder / source).unlink()


class LeavesFolders(FolderStore):
    """Does not remove what a network would call busy."""

    def remove_folder(self, name):
        pass


FAULT = Fault(
    "an entry that is not whole",
    store=InPlace,
    expected=[Expected("STORE-UNSAFE", field="read", seen="half an entry", count=1)],
)
TWIN = Fault("folders that stay do no harm", store=LeavesFolders)
