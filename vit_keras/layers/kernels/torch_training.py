"""What torch does in training with lists of tensors: one call for them all."""

import torch

no_grad = torch.no_grad


def global_norm(tensors):
    """The norm of all `tensors` together, float32."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)).float())


def scale_tensors(tensors, scale):
    """Multiplies `tensors` by `scale` in place and returns them."""
    torch._foreach_mul_(tensors, scale)
    return tensors


def move_towards(variables, targets, fraction):
    """Moves `variables` by `fraction` of the way to `targets`, all the way for 1."""
    torch._foreach_lerp_([v.value for v in variables], [v.value for v in targets], float(fraction))


def update_groups(groups, update):
    """Calls `update(weights, gradients, indices, *terms)` for each group of variables.

    `groups` is `{terms: [(variable, gradient, index), …]}`.
    """
    for terms, rows in groups.items():
        variables, gradients, indices = map(list, zip(*rows))
        update([variable.value for variable in variables], gradients, indices, *terms)
        for variable in variables:
            variable.value.grad = None  # Keras keeps it until the next forward pass is done


def adamw_update(
    weights, gradients, momentums, velocities, update, *, rate, weight_decay, betas, epsilon
):
    """The `update`th update of some weights by AdamW, all in place."""
    moments = ([slot.value for slot in slots] for slots in (momentums, velocities))
    updates = [update.to(torch.float32)] * len(weights)
    torch._fused_adamw_(
        *(weights, gradients, *moments, [], updates),
        lr=rate,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


def sgd_update(weights, gradients, traces, momentum, *, rate, weight_decay):
    """u ← momentum · u + g, w ← w - rate · (u + weight_decay · w), all in place."""
    traces = [trace.value for trace in traces]
    directions = [trace.float() for trace in traces]  # float32 traces themselves
    torch._foreach_mul_(directions, momentum)
    torch._foreach_add_(directions, gradients)
    torch._foreach_copy_(traces, directions)
    if weight_decay:
        torch._foreach_mul_(weights, 1 - rate * weight_decay)
    torch._foreach_add_(weights, directions, alpha=-rate)
