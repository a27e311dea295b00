"""A Vision Transformer made of Flax's layers, as a reference for the tests.

The names follow from Flax's numbering of parts, the published code's and big_vision's.
`positions_first` adds the position embeddings before the class token, as big_vision does.
"""

import flax.linen as nn
import jax.numpy as jnp


class MlpBlock(nn.Module):
    mlp_dim: int

    @nn.compact
    def __call__(self, x):
        y = nn.gelu(nn.Dense(self.mlp_dim)(x))
        return nn.Dense(x.shape[-1])(y)


class Encoder1DBlock(nn.Module):
    num_heads: int
    mlp_dim: int

    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.num_heads)(*[nn.LayerNorm()(x)] * 2)
        return x + MlpBlock(self.mlp_dim)(nn.LayerNorm()(x))


class AddPositionEmbs(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x + self.param("pos_embedding", nn.initializers.normal(0.02), (1, *x.shape[1:]))


class Encoder(nn.Module):
    num_layers: int
    num_heads: int
    mlp_dim: int
    positions: bool

    @nn.compact
    def __call__(self, x):
        if self.positions:
            x = AddPositionEmbs(name="posembed_input")(x)
        for i in range(self.num_layers):
            x = Encoder1DBlock(self.num_heads, self.mlp_dim, name=f"encoderblock_{i}")(x)
        return nn.LayerNorm(name="encoder_norm")(x)


class MAPHead(nn.Module):
    num_heads: int
    mlp_dim: int

    @nn.compact
    def __call__(self, x):
        batch, _, width = x.shape
        probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, width))
        probe = jnp.tile(probe, (batch, 1, 1))
        y = nn.MultiHeadDotProductAttention(num_heads=self.num_heads)(probe, x)
        return (y + MlpBlock(self.mlp_dim)(nn.LayerNorm()(y)))[:, 0]


class FlaxVisionTransformer(nn.Module):
    patch_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    num_classes: int
    classifier: str = "token"
    representation_size: int | None = None
    positions_first: bool = False

    @nn.compact
    def __call__(self, images):
        patch = (self.patch_size, self.patch_size)
        x = nn.Conv(self.hidden_size, patch, strides=patch, padding="VALID", name="embedding")(
            images
        )
        x = x.reshape(len(x), -1, self.hidden_size)
        if self.positions_first:
            shape = (1, *x.shape[1:])
            x = x + self.param("pos_embedding", nn.initializers.normal(0.02), shape)
        if self.classifier == "token":
            cls = self.param("cls", nn.initializers.zeros, (1, 1, self.hidden_size))
            x = jnp.concatenate([jnp.tile(cls, (len(x), 1, 1)), x], axis=1)
        sizes = (self.num_layers, self.num_heads, self.mlp_dim)
        x = Encoder(*sizes, positions=not self.positions_first, name="Transformer")(x)
        if self.classifier == "map":
            x = MAPHead(self.num_heads, self.mlp_dim)(x)
        else:
            x = x[:, 0] if self.classifier == "token" else x.mean(axis=1)
        if self.representation_size is not None:
            x = jnp.tanh(nn.Dense(self.representation_size, name="pre_logits")(x))
        return nn.Dense(self.num_classes, name="head")(x)
