"""Other libraries' models, run in their own frameworks as their users run them."""

from benchmarks.cases import CLASSES, FAMILIES, PATCH, SIZES, Case, random_batch


def torch_steps(model, case, logits=lambda y: y):
    """Steps of a torch module that takes images `(B, C, H, W)`."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    arrays = random_batch(case.batch, case.image_size)
    images, labels = (torch.from_numpy(array).to(device) for array in arrays)
    images = images.permute(0, 3, 1, 2).contiguous()
    model.to(device)
    half = torch.autocast(device, torch.bfloat16, enabled=case.precision == "bf16")
    parameters = sum(p.numel() for p in model.parameters())
    if case.mode == "infer":
        model.eval()

        def infer(count):
            with torch.inference_mode(), half:
                for _ in range(count):
                    model(images)
                wait()

        return infer, parameters
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.1)

    def train(count):
        for _ in range(count):
            optimizer.zero_grad()
            with half:
                loss = torch.nn.functional.cross_entropy(logits(model(images)).float(), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()

    return train, parameters


def timm_model(case: Case):
    """timm's model of the case's size."""
    import benchmarks.torchvision_operators  # noqa: F401

    if case.size in FAMILIES:
        import timm

        *_, name = FAMILIES[case.size]
        return timm.create_model(name, num_classes=CLASSES, img_size=case.image_size)
    width, layers, heads, mlp = SIZES[case.size]
    from timm.models import VisionTransformer  # needs the operators above

    return VisionTransformer(
        case.image_size,
        PATCH,
        embed_dim=width,
        depth=layers,
        num_heads=heads,
        mlp_ratio=mlp / width,
    )


def timm(case: Case):
    """timm's VisionTransformer."""
    return torch_steps(timm_model(case), case)


def timm_compiled(case: Case):
    """timm's VisionTransformer by `torch.compile`."""
    import torch

    return torch_steps(torch.compile(timm_model(case)), case)


def transformers(case: Case):
    """Hugging Face's ViTForImageClassification."""
    from transformers import ViTConfig, ViTForImageClassification

    import benchmarks.torchvision_operators  # noqa: F401

    width, layers, heads, mlp = SIZES[case.size]
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=mlp,
        image_size=case.image_size,
        patch_size=PATCH,
        num_labels=CLASSES,
    )
    return torch_steps(ViTForImageClassification(config), case, logits=lambda y: y.logits)


def torchvision(case: Case):
    """torchvision's VisionTransformer."""
    import benchmarks.torchvision_operators  # noqa: F401

    width, layers, heads, mlp = SIZES[case.size]
    from torchvision.models import VisionTransformer  # needs the operators above

    model = VisionTransformer(case.image_size, PATCH, layers, heads, width, mlp)
    return torch_steps(model, case)


def flax(case: Case):
    """The model written after the published code."""
    import jax

    from benchmarks.flax_vit import FlaxVisionTransformer

    model = FlaxVisionTransformer(PATCH, *SIZES[case.size], CLASSES)
    images, _ = random_batch(1, case.image_size)
    return jax_steps(model.apply, jax.jit(model.init)(jax.random.PRNGKey(0), images), case)


def jax_steps(apply, parameters, case):
    """Steps of a function of parameters and images, with the equivalent optimizer of optax."""
    import jax
    import jax.numpy as jnp
    import optax

    dtype = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    images, labels = random_batch(case.batch, case.image_size)
    cast = lambda tree: jax.tree.map(lambda x: x.astype(dtype), tree)
    num_parameters = sum(x.size for x in jax.tree.leaves(parameters))
    logits = lambda p, x: apply(cast(p), x.astype(dtype)).astype(jnp.float32)
    if case.mode == "infer":
        forward = jax.jit(logits)

        def infer(count):
            for _ in range(count):
                forward(parameters, images).block_until_ready()

        return infer, num_parameters
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4, weight_decay=0.1))
    state = [parameters, jax.jit(optimizer.init)(parameters)]

    def loss(p, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(logits(p, x), y).mean()

    @jax.jit
    def update(p, s, x, y):
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        updates, s = optimizer.update(gradients, s, p)
        return optax.apply_updates(p, updates), s, value

    update = jax.jit(update, donate_argnums=(0, 1))

    def train(count):
        for _ in range(count):
            *state[:], value = update(*state, images, labels)
        value.block_until_ready()

    return train, num_parameters
