"""The sizes that families share: width, blocks, heads, width of the MLP."""

TI, S, M = (192, 12, 3, 768), (384, 12, 6, 1536), (512, 12, 8, 2048)
B, L, H = (768, 12, 12, 3072), (1024, 24, 16, 4096), (1280, 32, 16, 5120)
SO400M = (1152, 27, 16, 4304)
G = (1408, 40, 16, 6144)  # ViT-g
