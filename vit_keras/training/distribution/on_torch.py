"""torch: one process a device, which average their gradients by `torch.distributed`."""

import functools
import os

import numpy as np

from vit_keras.initializers import fold_in
from vit_keras.training.distribution.topology import Topology, read


class TorchTopology(Topology):
    """One of several processes, each with a device of its own."""

    distributed = True

    def __init__(self, cluster, config, mode):
        import torch

        super().__init__(cluster)
        self.devices = self.replicas = cluster.count
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        if self._device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        torch.distributed.init_process_group("nccl" if self._device == "cuda" else "gloo")
        self._left.callback(torch.distributed.destroy_process_group)

    def prepare(self, model):
        """Gives each process dropout masks of its own, and logs the sums of their metrics.

        What a checkpoint knows of metrics is their sum, which the chief then goes on with.
        """
        if "_get_metrics_result_or_logs" not in vars(model):
            local = model._get_metrics_result_or_logs
            model._get_metrics_result_or_logs = functools.partial(_over_all, model, local)
        if self.is_chief:
            return
        for variable in model.metrics_variables:
            variable.assign(np.zeros(variable.shape, "float32"))
        for variable in model.variables:
            if variable.path.endswith("seed_generator_state"):
                seed, counter = read(variable)
                seed = fold_in(int(seed), f"process_{self.process_index}")
                variable.assign(np.array([seed, counter], variable.dtype))

    def read_total(self, variable):
        return _all_reduce([variable.value])[0].cpu().numpy()

    def gather(self, value):
        import torch

        places = torch.zeros(self.process_count, dtype=torch.int64, device=self._device)
        places[self.process_index] = value
        return _all_reduce([places])[0].cpu().numpy()


def _over_all(model, local, logs):
    """`local(logs)`, which reads the metrics, while they hold the sums over the processes."""
    variables = model.metrics_variables
    kept = [variable.value.clone() for variable in variables]
    for variable, total in zip(variables, _all_reduce(kept)):
        variable.assign(total)
    found = local(logs)
    for variable, value in zip(variables, kept):
        variable.assign(value)
    return found


def mean_over_processes(grads):
    """The mean of each gradient over the processes; itself where there is one process."""
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return grads
    count = torch.distributed.get_world_size()
    return [total / count for total in _all_reduce(grads)]


def _all_reduce(tensors):
    """The sums over the processes, in one message."""
    import torch

    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    torch.distributed.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors)]
