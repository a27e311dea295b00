"""The commit of a hub's model that a run starts from, which stays the same until the run ends."""

from vit_keras import runs, weights
from vit_keras.config import Config
from vit_keras.config.addresses import addresses_of, change_addresses
from vit_keras.hub_address import without_commit


def pin_weights(config: Config) -> Config:
    """Names the commits or versions of the models of hubs that a run starts and learns from.

    An address without one gets the one in the `config.yaml` of the run's folder, so that a run goes
    on as it began, whatever was uploaded since. A new run gets the newest.

    Args:
        config: The configuration; its `workdir` is the folder, by default `runs.default_workdir`.

    Raises:
        OSError: A model is neither in the cache of the hub's package, nor can it be downloaded.
    """
    recorded = runs.recorded_config(runs.folder_of(config))
    known = {without_commit(path): path for path in addresses_of(recorded)} if recorded else {}
    return change_addresses(config, lambda path: known.get(path) or weights.pinned_address(path))
