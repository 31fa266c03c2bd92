"""What a tablet server of a real Fluss does not forget when it is killed."""

from __future__ import annotations

from sluice.client import Client
from sluice.model import TablePath
from tests.support.fluss.real_fluss import RealFluss
from tests.support.programs.processes import wait_for

FILE = "high-watermark-checkpoint"


def wait_for_checkpoint(fluss: RealFluss, client: Client, path: TablePath) -> None:
    """Until the server has noted the present ends of a table's logs (see ``kill_tablet``).

    :param path: of a table without partitions.
    """
    table_id = client.admin.table_info(path).table_id
    ends = client.admin.list_offsets(path)
    wanted = {f"{table_id} {bucket} {end}" for bucket, end in ends.items() if end}
    assert wanted, f"{path} has no rows"

    def is_noted() -> bool:
        return wanted <= set((fluss.data_dir / FILE).read_text().splitlines())

    wait_for(f"a checkpoint of {path}", is_noted, 120)
