"""Synthetic model files for measurements of speed: the shapes of a small llama, with random weights."""
import ctypes as C, os, random, struct

# A model of 0.43 billion parameters.
LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 8, 2048, 5632, 32, 8, 32000, 4096
KV_WIDTH = WIDTH // HEADS * KV_HEADS

# The numbers of the formats in GGUF files.
FORMATS = dict(f32=0, f16=1, bf16=30, q4_0=2, q4_1=3, q5_0=6, q5_1=7, q8_0=8, q2_k=10, q3_k=11, q4_k=12, q5_k=13, q6_k=14,
               iq1_s=19, iq1_m=29, iq2_xxs=16, iq2_xs=17, iq2_s=22, iq3_xxs=18, iq3_s=21, iq4_nl=20, iq4_xs=23,
               tq1_0=34, tq2_0=35, mxfp4=39, nvfp4=40, q1_0=41, q2_0_g64=42)

TILE = 64  # rows that are quantized and then repeated


def shapes():
    """The tensors of the model, in the order of the file: the name and the dimensions, the innermost first."""
    yield "token_embd.weight", (WIDTH, VOCABULARY)
    yield "output_norm.weight", (WIDTH,)
    yield "output.weight", (WIDTH, VOCABULARY)
    for i in range(LAYERS):
        for name, dims in (("attn_norm", (WIDTH,)), ("attn_q", (WIDTH, WIDTH)), ("attn_k", (WIDTH, KV_WIDTH)),
                           ("attn_v", (WIDTH, KV_WIDTH)), ("attn_output", (WIDTH, WIDTH)), ("ffn_norm", (WIDTH,)),
                           ("ffn_gate", (WIDTH, HIDDEN)), ("ffn_up", (WIDTH, HIDDEN)), ("ffn_down", (HIDDEN, WIDTH))):
            yield "blk.%d.%s.weight" % (i, name), dims


def metadata():
    """The keys of the model and their values. An int is a u32 of the file, and a float an f32."""
    return {
        "general.architecture": "llama", "general.name": "synthetic",
        "llama.block_count": LAYERS, "llama.context_length": CONTEXT, "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": HIDDEN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS, "llama.vocab_size": VOCABULARY,
        "llama.rope.dimension_count": WIDTH // HEADS, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "no_vocab",
    }


class Encoder:
    """Rows of random weights in a format, encoded by ggml. base is the library libggml-base."""

    def __init__(self, base, format):
        self.base, self.id = base, FORMATS[format]
        base.ggml_row_size.restype, base.ggml_row_size.argtypes = C.c_size_t, [C.c_int, C.c_int64]
        base.ggml_quantize_chunk.restype = C.c_size_t
        base.ggml_quantize_chunk.argtypes = [C.c_int, C.c_void_p, C.c_void_p, C.c_int64, C.c_int64, C.c_int64, C.c_void_p]
        self.random, self.tiles = random.Random(7), {}

    def size(self, dims):
        return self.base.ggml_row_size(self.id, dims[0]) * dims[1]

    def bytes(self, dims):
        width, rows = dims
        if width not in self.tiles:
            values = (C.c_float * (width * TILE))(*[self.random.gauss(0, 0.02) for _ in range(width * TILE)])
            importance = (C.c_float * width)(*([1.0] * width))
            out = C.create_string_buffer(self.size((width, TILE)))
            self.base.ggml_quantize_chunk(self.id, values, out, 0, TILE, width, importance)
            self.tiles[width] = out.raw
        return self.tiles[width] * (rows // TILE)


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    return struct.pack("<II", 4, v)


def aligned(n):
    return (n + 31) // 32 * 32


def write(base, path, format):
    """Writes the model with all its matrices in a format. Its vectors are f32, and all ones."""
    encoder, keys, offset, infos = Encoder(base, format), metadata(), 0, b""
    for name, dims in shapes():
        size, id = (4 * dims[0], 0) if len(dims) == 1 else (encoder.size(dims), encoder.id)
        infos += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, id, offset)
        offset += aligned(size)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(list(shapes())), len(keys))
    head += b"".join(text(k) + value(v) for k, v in keys.items()) + infos
    temporary = path + ".part"
    with open(temporary, "wb") as f:
        f.write(head.ljust(aligned(len(head)), b"\0"))
        for _, dims in shapes():
            data = struct.pack("<%df" % dims[0], *[1.0] * dims[0]) if len(dims) == 1 else encoder.bytes(dims)
            f.write(data.ljust(aligned(len(data)), b"\0"))
    os.replace(temporary, path)


def read_by_token(path):
    """The bytes of weights that one token reads: all matrices but the embedding."""
    matrices = [(name, dims[0] * dims[1]) for name, dims in shapes() if len(dims) == 2]
    used = sum(n for name, n in matrices if name != "token_embd.weight")
    return os.path.getsize(path) * used / sum(n for _, n in matrices)
