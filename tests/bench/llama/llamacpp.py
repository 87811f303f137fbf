"""A binding of llama.cpp's prebuilt libraries, as far as the benchmark needs it (v0.4.0, ggml 0.23.0).

The structures are those of llama.h of that version.
"""
import ctypes as C, glob, os, re, time


class ModelParams(C.Structure):
    _fields_ = [("devices", C.c_void_p), ("tensor_buft_overrides", C.c_void_p), ("n_gpu_layers", C.c_int32),
                ("split_mode", C.c_int), ("load_mode", C.c_int), ("lazy_mode", C.c_int), ("main_gpu", C.c_int32),
                ("tensor_split", C.c_void_p), ("progress_callback", C.c_void_p),
                ("progress_callback_user_data", C.c_void_p), ("kv_overrides", C.c_void_p)] + \
               [(n, C.c_bool) for n in ("vocab_only", "check_tensors", "use_extra_bufts", "no_host", "no_alloc",
                                        "load_mtp")]


class ContextParams(C.Structure):
    _fields_ = [(n, C.c_uint32) for n in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max",
                                          "n_outputs_max_per_seq")] + \
               [("n_threads", C.c_int32), ("n_threads_batch", C.c_int32)] + \
               [(n, C.c_int) for n in ("ctx_type", "rope_scaling_type", "pooling_type", "attention_type",
                                       "flash_attn_type")] + \
               [(n, C.c_float) for n in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor",
                                         "yarn_beta_fast", "yarn_beta_slow")] + \
               [("yarn_orig_ctx", C.c_uint32), ("defrag_thold", C.c_float), ("cb_eval", C.c_void_p),
                ("cb_eval_user_data", C.c_void_p), ("type_k", C.c_int), ("type_v", C.c_int),
                ("abort_callback", C.c_void_p), ("abort_callback_data", C.c_void_p)] + \
               [(n, C.c_bool) for n in ("embeddings", "offload_kqv", "no_perf", "op_offload", "swa_full",
                                        "kv_unified")] + \
               [("samplers", C.c_void_p), ("n_samplers", C.c_size_t), ("ctx_other", C.c_void_p)]


class Batch(C.Structure):
    _fields_ = [("n_tokens", C.c_int32), ("token", C.POINTER(C.c_int32)), ("embd", C.c_void_p),
                ("pos", C.POINTER(C.c_int32)), ("n_seq_id", C.POINTER(C.c_int32)),
                ("seq_id", C.POINTER(C.POINTER(C.c_int32))), ("logits", C.POINTER(C.c_int8))]


F16, ON, BATCH = 1, 1, 512
LOG = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)


class Llama:
    """The libraries of a directory. cpu names the only library of kernels to use, such as haswell; by default
    llama.cpp picks the best one for the processor."""

    def __init__(self, directory, cpu=None):
        def library(pattern):
            found = glob.glob(os.path.join(directory, pattern))
            if len(found) != 1:
                raise SystemExit("%d files are %s in %s, want 1" % (len(found), pattern, directory))
            return found[0]

        self.base = C.CDLL(library("libggml-base.so"), mode=C.RTLD_GLOBAL)
        ggml = C.CDLL(library("libggml.v*.so"), mode=C.RTLD_GLOBAL)
        self.lib = lib = C.CDLL(library("libllama.v*.so"), mode=C.RTLD_GLOBAL)
        self.log = LOG(lambda level, text, data: None)
        lib.llama_log_set(self.log, None)
        if cpu:
            ggml.ggml_backend_load.restype = C.c_void_p
            if not ggml.ggml_backend_load(library("libggml-cpu-%s.so" % cpu).encode()):
                raise SystemExit("this processor does not run llama.cpp's library " + cpu)
        else:
            ggml.ggml_backend_load_all_from_path(directory.encode())
        for name, result, arguments in (
                ("llama_model_default_params", ModelParams, []),
                ("llama_context_default_params", ContextParams, []),
                ("llama_model_load_from_file", C.c_void_p, [C.c_char_p, ModelParams]),
                ("llama_init_from_model", C.c_void_p, [C.c_void_p, ContextParams]),
                ("llama_batch_get_one", Batch, [C.POINTER(C.c_int32), C.c_int32]),
                ("llama_decode", C.c_int32, [C.c_void_p, Batch]),
                ("llama_synchronize", None, [C.c_void_p]),
                ("llama_get_memory", C.c_void_p, [C.c_void_p]),
                ("llama_memory_seq_rm", C.c_bool, [C.c_void_p, C.c_int32, C.c_int32, C.c_int32]),
                ("llama_free", None, [C.c_void_p]),
                ("llama_model_free", None, [C.c_void_p]),
                ("llama_print_system_info", C.c_char_p, [])):
            f = getattr(lib, name)
            f.restype, f.argtypes = result, arguments

    def describe(self):
        """The library of kernels that was loaded, and what it says about the processor."""
        with open("/proc/self/maps") as f:
            kernels = sorted(set(re.findall(r"libggml-cpu-\w+\.so", f.read())))
        return "llama.cpp: %s; %s" % (", ".join(kernels), self.lib.llama_print_system_info().decode().strip(" |\n"))


class Model:
    """A model file with a context of some tokens on some threads. close ends it."""

    def __init__(self, llama, path, threads, tokens):
        self.lib, lib = llama.lib, llama.lib
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit("llama.cpp does not load " + path)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = tokens, BATCH, BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type, params.type_k, params.type_v = ON, F16, F16
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp makes no context for " + path)

    def close(self):
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)

    def rewind(self, tokens):
        """Keeps the first tokens of the sequence."""
        if not self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(self.context), 0, tokens, -1):
            raise SystemExit("llama.cpp does not remove tokens")

    def decode(self, n):
        """Processes n tokens at once, in batches, with the logits of the last one."""
        for lo in range(0, n, BATCH):
            size = min(BATCH, n - lo)
            ids = (C.c_int32 * size)(*[(lo + i) * 7919 % 32000 for i in range(size)])
            if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(ids, size)):
                raise SystemExit("llama.cpp does not decode")
        self.lib.llama_synchronize(self.context)

    def rate(self, prompt, generated, depth):
        """Tokens per second of a prompt, or of tokens one by one if prompt is 0, after depth tokens. One run that does
        not count comes before."""
        self.rewind(0)
        if depth:
            self.decode(depth)
        for _ in range(2):
            self.rewind(depth)
            start = time.perf_counter()
            if prompt:
                self.decode(prompt)
            for _ in range(generated):
                self.decode(1)
            seconds = time.perf_counter() - start
        return (prompt + generated) / seconds


def first_token(llama, path, threads):
    """Seconds from opening a model to the logits of one token. One run that does not count comes before."""
    for _ in range(2):
        start = time.perf_counter()
        model = Model(llama, path, threads, 256)
        model.decode(1)
        seconds = time.perf_counter() - start
        model.close()
    return seconds
