"""The performance of devices, from their makers' data sheets."""

import dataclasses
import math

from vit_keras.support.checks import check_choice

GIB, GB, TERA = 2**30, 10**9, 10**12
NVIDIA = "https://www.nvidia.com/en-us/data-center"
TPU = "https://cloud.google.com/tpu/docs"


@dataclasses.dataclass(frozen=True)
class Device:
    """The specifications of a device that a plan needs.

    Attributes:
        name: The device's name.
        flops: Operations per second of bfloat16 products, without sparsity.
        flops_float32: The same for float32 products with JAX's default precision: TF32 on NVIDIA's
            GPUs, bfloat16 on TPUs.
        memory: Bytes.
        bandwidth: Bytes per second between the device and its memory.
        link: Bytes per second that the device sends to others of its group, in one direction.
        group: The number of devices that the fast links connect.
        network: Bytes per second that it sends to devices of other groups, in one direction.
        source: The source of the numbers.

    Example:
        >>> find_device("h100").memory / GIB
        74.5...
    """

    name: str
    flops: float | None
    flops_float32: float | None
    memory: float
    bandwidth: float
    link: float
    group: int
    network: float
    source: str


# NVIDIA states the sum of both directions of NVLink, halved here; the network is the adapter of
# each GPU in its DGX. TPUs: the pod's all-reduce bandwidth over its chips, a chip of v3 in 2 cores.
# Google states only the network of v5e; chips of v3 and v4 are assumed to have the same.
DEVICES = {
    "a100": Device(
        *("NVIDIA A100 SXM 80 GB", 312 * TERA, 156 * TERA, 80 * GB, 2039 * GB, 300 * GB, 8),
        *(25 * GB, f"{NVIDIA}/a100"),
    ),
    "h100": Device(
        *("NVIDIA H100 SXM 80 GB", 989.4 * TERA, 494.7 * TERA, 80 * GB, 3350 * GB, 450 * GB, 8),
        *(50 * GB, f"{NVIDIA}/h100"),
    ),
    "h200": Device(
        *("NVIDIA H200 SXM", 989.4 * TERA, 494.7 * TERA, 141 * GB, 4800 * GB, 450 * GB, 8),
        *(50 * GB, f"{NVIDIA}/h200"),
    ),
    "tpu_v3": Device(
        *("a core of TPU v3", 61.5 * TERA, 61.5 * TERA, 16 * GIB, 450 * GB, 166 * GB, 2048),
        *(1.5625 * GB, f"{TPU}/v3"),
    ),
    "tpu_v4": Device(
        *("a chip of TPU v4", 275 * TERA, 275 * TERA, 32 * GIB, 1200 * GB, 268 * GB, 4096),
        *(3.125 * GB, f"{TPU}/v4"),
    ),
    "tpu_v5e": Device(
        *("a chip of TPU v5e", 197 * TERA, 197 * TERA, 16 * GB, 819 * GB, 200 * GB, 256),
        *(3.125 * GB, f"{TPU}/v5e"),
    ),
    "cpu": Device(
        *("this processor by JAX", None, None, math.inf, math.inf, math.inf, 1, math.inf),
        "XLA's analysis of the compiled step",
    ),
}


def find_device(name: str) -> Device:
    """Returns the specifications of a device.

    Args:
        name: A key of `DEVICES`, such as "h100".

    Raises:
        ValueError: There is no such device in the table.

    Example:
        >>> find_device("tpu_v3").flops
        61500000000000.0
    """
    check_choice(name, DEVICES, "device")
    return DEVICES[name]
