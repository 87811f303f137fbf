#!/usr/bin/env python3
"""Record testdata with ggml: what it makes of the inputs that are there.

usage: record.py LIBDIR    run in the directory of package quant

LIBDIR holds libggml-base.so of ggml 0.23. Reads input.f32 and T.rand.bin in testdata
and writes the other files, except its README.md. The rows behind encode.sha256 are
those of encode_test.go: every number is rounded to f32 where it is there.
"""
import array, ctypes as C, hashlib, math, os, sys

sys.dont_write_bytecode = True  # no __pycache__ in the tree
from encoders import FORMATS

# Formats that ggml_quantize_chunk does not take. Q8_1 is never decoded.
ROW_FUNCTIONS = dict(q8_1="quantize_row_q8_1_ref", q8_k="quantize_row_q8_K_ref")
ORDER = ("q1_0 q2_0_g64 q4_0 q4_1 q5_0 q5_1 q8_0 q8_1 q2_k q3_k q4_k q5_k q6_k q8_k iq1_s iq1_m iq2_xxs iq2_xs iq2_s "
         "iq3_xxs iq3_s iq4_nl iq4_xs tq1_0 tq2_0 mxfp4 nvfp4").split()
IDS = dict(FORMATS, f32=0, f16=1, bf16=30, q8_1=9, q8_k=15)
ROW = 512


class Traits(C.Structure):
    """The start of struct ggml_type_traits."""
    _fields_ = [("name", C.c_char_p), ("block", C.c_int64), ("interleave", C.c_int64), ("size", C.c_size_t),
                ("quantized", C.c_bool), ("to_float", C.CFUNCTYPE(None, C.c_void_p, C.c_void_p, C.c_int64))]


class Ggml:
    def __init__(self, libdir):
        self.lib = C.CDLL(os.path.join(libdir, "libggml-base.so"))
        self.lib.ggml_version.restype = C.c_char_p
        version = self.lib.ggml_version().decode()
        if not version.startswith("0.23."):
            sys.exit("ggml is %s, want 0.23" % version)
        self.lib.ggml_get_type_traits.restype = C.POINTER(Traits)
        self.lib.ggml_quantize_chunk.argtypes = [C.c_int] + 2 * [C.c_void_p] + 3 * [C.c_int64] + [C.c_void_p]
        self.lib.ggml_quantize_requires_imatrix.restype = C.c_bool

    def traits(self, name):
        return self.lib.ggml_get_type_traits(IDS[name]).contents

    def needs_importance(self, name):
        return self.lib.ggml_quantize_requires_imatrix(IDS[name])

    def encode(self, name, x, row, importance=None):
        t = self.traits(name)
        src, dst = (C.c_float * len(x))(*x), (C.c_uint8 * (len(x) // t.block * t.size))()
        if name in ROW_FUNCTIONS:
            getattr(self.lib, ROW_FUNCTIONS[name])(src, dst, C.c_int64(len(x)))
        else:
            weights = importance and (C.c_float * row)(*importance)
            self.lib.ggml_quantize_chunk(IDS[name], src, dst, 0, len(x) // row, row, weights)
        return bytes(dst)

    def decode(self, name, src):
        if name == "f32":
            return src
        t = self.traits(name)
        n = len(src) // t.size * t.block
        dst = (C.c_float * n)()
        if name == "q8_k":
            self.lib.dequantize_row_q8_K(src, dst, C.c_int64(n))
        else:
            t.to_float(src, dst, n)
        bits = array.array("I", bytes(dst))
        return array.array("I", (0x7fc00000 if b & 0x7fffffff > 0x7f800000 else b for b in bits)).tobytes()


def f32(v):
    return C.c_float(v).value


class Lcg:
    def __init__(self, seed):
        self.s = seed

    def uniform(self):
        self.s = (self.s * 1664525 + 1013904223) & 0xffffffff
        return (self.s >> 16) / 65536

    def bell(self):
        return self.uniform() + self.uniform() + self.uniform() + self.uniform() - 2


def zeros(s, i):
    v = s.bell()
    if i // 32 % 4 == 1 or i // 16 % 6 == 5:
        return math.copysign(0, v)
    return 0 if i // 32 % 4 == 2 and s.uniform() < f32(0.9) else v


def nearly_constant(s, i):
    return (3.25, -3.25)[i // 256 % 2] * (1 + 2**-22 * int(f32(s.uniform() * 4)))


def square(s, i):
    v = s.bell()
    return f32(v * v) + 2**-10


def sparse(s, i):
    v = s.uniform()
    return v if v > 0.5 and i // 32 % 8 != 3 else 0


DISTRIBUTIONS = {
    "bell": lambda s, i: s.bell(),
    "heavy": lambda s, i: s.bell() / (s.uniform() + 2**-9),
    "zeros": zeros,
    "tiny": lambda s, i: s.bell() * (2**-20, 2**-45, 2**-60, 2**-120)[i // 256 % 4],
    "huge": lambda s, i: s.bell() * 2000,
    "ties": lambda s, i: (int(f32(s.uniform() * 257)) - 128) / 2,
    "constant": lambda s, i: (3.25, -3.25, 0, -0.1)[i // 64 % 4],
    "nearly constant": nearly_constant,
    "negative": lambda s, i: -1 - s.uniform(),
}
IMPORTANCES = {"none": None, "square": square, "sparse": sparse}


def hashes(ggml):
    for d, (dist, value) in enumerate(DISTRIBUTIONS.items()):
        for k, (imp, weight) in enumerate(IMPORTANCES.items()):
            s = Lcg(1000 * d + k + 1)
            x = [f32(value(s, i)) for i in range(2 * ROW)]
            importance = weight and [f32(weight(s, i)) for i in range(ROW)]
            for name in ORDER:
                if importance or not ggml.needs_importance(name):
                    b = ggml.encode(name, x, ROW, importance)
                    yield "%s %s %s %s\n" % (hashlib.sha256(b).hexdigest()[:16], name, dist, imp)


def main():
    ggml = Ggml(sys.argv[1])
    read = lambda name: open(os.path.join("testdata", name), "rb").read()

    def write(name, b):
        with open(os.path.join("testdata", name), "wb") as f:
            f.write(b)

    x = array.array("f", read("input.f32"))
    for name in ["f32", "f16", "bf16"] + ORDER:
        ones = [1.0] * len(x) if ggml.needs_importance(name) else None
        b = ggml.encode(name, x, len(x), ones)
        write(name + ".q.bin", b)
        if name != "q8_1":
            write(name + ".dq.f32", ggml.decode(name, b))
            if name not in ("f32", "f16", "bf16"):
                write(name + ".rand.f32", ggml.decode(name, read(name + ".rand.bin")))
    write("encode.sha256", "".join(hashes(ggml)).encode())


if __name__ == "__main__":
    main()
