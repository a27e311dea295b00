"""torch: one process per device; `torch.distributed` averages their gradients."""

import os

import numpy as np

from vit_keras.layers.base import fold_in
from vit_keras.support import keras_internals
from vit_keras.training.distribution import Topology, fit_replicas, read_variable


class DistributedTopology(Topology):
    """One of several processes, each with its own device."""

    distributed = True

    def __init__(self, cluster, config, mode):
        import torch

        super().__init__(cluster)
        self.devices = self.replicas = cluster.count
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        if self._device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        torch.distributed.init_process_group("nccl" if self._device == "cuda" else "gloo")
        self._exit_stack.callback(torch.distributed.destroy_process_group)

    def prepare(self, model):
        """Gives each process its own dropout masks, and makes logs sum metrics over processes."""
        keras_internals.wrap_logs(model, _summed_logs)
        for variable in () if self.is_chief else model.variables:
            if variable.path.endswith("seed_generator_state"):
                seed, counter = read_variable(variable)
                seed = fold_in(int(seed), f"process_{self.process_index}")
                variable.assign(np.array([seed, counter], variable.dtype))

    def read_replicas(self, variables):
        replicas = []
        for variable in variables:
            values = variable.value.new_zeros((self.process_count, *variable.shape))
            values[self.process_index] = variable.value
            replicas.append(values)
        return [values.cpu().numpy() for values in _all_reduce(replicas)] if replicas else []

    def write_replicas(self, variables, replicas):
        for variable, values in zip(variables, replicas):
            variable.assign(fit_replicas(values, self.process_count)[self.process_index])

    def gather(self, value):
        import torch

        values = torch.zeros(self.process_count, dtype=torch.int64, device=self._device)
        values[self.process_index] = value
        return _all_reduce([values])[0].cpu().numpy()


def _summed_logs(model, read_logs, logs):
    """Calls `read_logs(logs)` while the metrics hold their sums over the processes."""
    variables = model.metrics_variables
    values = [variable.value.clone() for variable in variables]
    for variable, total in zip(variables, _all_reduce(values)):
        variable.assign(total)
    summed = read_logs(logs)
    for variable, value in zip(variables, values):
        variable.assign(value)
    return summed


def reduce_gradients(gradients: list) -> list:
    """Averages each gradient over the processes; changes nothing if there is only one."""
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return gradients
    count = torch.distributed.get_world_size()
    return [total / count for total in _all_reduce(gradients)]


def _all_reduce(tensors):
    """Sums tensors over the processes, in one message."""
    import torch

    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    torch.distributed.all_reduce(flat)
    sums = flat.split([tensor.numel() for tensor in tensors])
    return [total.reshape(tensor.shape) for total, tensor in zip(sums, tensors)]
