#!/usr/bin/env python3
"""Compare the speed of models with that of llama.cpp.

usage: bench.py CACHE    make bench-llama calls it

CACHE has the programs bin/fucina and bin/floors, and llama.cpp's libraries in llama. Models are written to
CACHE/models when they are first needed. docs/benchmarks.md describes the variables that choose what is measured.

The two sides take turns within one run, so that whatever else the machine does affects both. Each turn is one run
that does not count and one that does. The tables have the medians of the turns.
"""
import json, os, statistics, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import common, llamacpp, synthetic

# The threads of llama.cpp poll for some milliseconds after their work, and would slow down the next turn.
REST = 0.05


class Test:
    """What one turn measures, for both sides. The name is that of fucina bench and of llama-bench."""

    def __init__(self, prompt=0, generated=0, depth=0):
        self.prompt, self.generated, self.depth = prompt, generated, depth
        self.first = not prompt and not generated
        self.name = "first" if self.first else "pp%d" % prompt if prompt else "tg%d" % generated
        if depth:
            self.name += " @ d%d" % depth

    def llama(self, llama, model, path, threads):
        if self.first:
            return 1 / llamacpp.first_token(llama, path, threads)
        return model.rate(self.prompt, self.generated, self.depth)

    def fucina(self, program, path, threads):
        """The rate, and the most memory that the process had."""
        command = [program, "bench", "-m", path, "-t", str(threads), "-r", "1", "-o", "json",
                   "-p", str(self.prompt), "-n", str(self.generated), "-d", str(self.depth)]
        if self.first:
            command.append("--first")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        memory = 0
        while process.poll() is None:
            memory = max(memory, most_memory(process.pid))
            time.sleep(0.05)
        out = process.stdout.read()
        if process.returncode:
            sys.exit("%s: exit status %d" % (" ".join(command), process.returncode))
        (measured,) = json.loads(out)
        if measured["test"] != self.name:
            sys.exit("fucina measured %s, want %s" % (measured["test"], self.name))
        return measured["median"], memory


def most_memory(pid):
    """The most memory that a process has had so far. getrusage does not tell: its figure includes that of this
    process, which has a model too, from before the other program was started."""
    try:
        with open("/proc/%d/status" % pid) as f:
            for line in f:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # the process has ended
    return 0


def tests(short):
    prompts = common.numbers("PROMPTS", "8 64" if short else "8 16 64 512")
    depths = common.numbers("DEPTHS", "0" if short else "0 1024")
    tokens = int(common.setting("TOKENS", "24" if short else "48"))
    list = [Test(prompt=n) for n in prompts] + [Test(generated=tokens, depth=d) for d in depths]
    if common.setting("FIRST", "0" if short else "1") == "1":
        list.append(Test())
    return list


class Comparison:
    """The turns of one model on some threads."""

    def __init__(self, llama, program, path, threads):
        self.llama, self.program, self.path, self.threads = llama, program, path, threads
        self.memory = 0

    def run(self, tests, repetitions, floors):
        """Returns the rates of llama.cpp and those of fucina, by the name of the test."""
        rates = {test.name: ([], []) for test in tests}
        tokens = max(test.depth + test.prompt + test.generated for test in tests)
        model = llamacpp.Model(self.llama, self.path, self.threads, max(256, (tokens + 255) // 256 * 256))
        for turn in range(repetitions):
            floors.probe()
            for test in tests:
                # Who begins changes from turn to turn.
                for side in ((0, 1), (1, 0))[turn % 2]:
                    time.sleep(REST)
                    rates[test.name][side].append(self.rate(test, model, side))
        model.close()
        return rates

    def rate(self, test, model, side):
        if side == 0:
            return test.llama(self.llama, model, self.path, self.threads)
        rate, memory = test.fucina(self.program, self.path, self.threads)
        if not test.first:  # which has the model open twice
            self.memory = max(self.memory, memory)
        return rate


def tell(format, comparison, tests, rates, floors):
    """Prints the rows of a model, and what follows from them."""
    decode, prompt8 = None, None
    for test in tests:
        theirs, ours = (statistics.median(side) for side in rates[test.name])
        common.row(format, comparison.threads, test.name, "%.2f" % theirs, "%.2f" % ours, "%.2f" % (ours / theirs),
                   "%.2f to %.2f" % (min(rates[test.name][1]) / theirs, max(rates[test.name][1]) / theirs))
        if test.generated and not test.depth:
            decode = ours
        if test.prompt == 8:
            prompt8 = ours
    if decode:
        speed = decode * synthetic.read_by_token(comparison.path) / 1e9
        floor = statistics.median(floors.read[comparison.threads])
        note = "decode reads %.1f GB/s of weights, %.0f%% of the floor of %.1f" % (speed, 100 * speed / floor, floor)
        if prompt8:
            note += "; pp8 is %.2f times decode" % (prompt8 / decode)
        NOTES.append("%s, %d threads: %s" % (format, comparison.threads, note))
    size = os.path.getsize(comparison.path)
    NOTES.append("%s, %d threads: at most %.0f MB of memory, %.2f times the file" %
                 (format, comparison.threads, comparison.memory / 1e6, comparison.memory / size))


NOTES = []


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cache = sys.argv[1]
    short = common.setting("SHORT", "0") == "1"
    formats = common.words("FORMATS", "q4_k" if short else "q4_k q4_0 q6_k q8_0 f16")
    for format in formats:
        if format not in synthetic.FORMATS:
            sys.exit("FORMATS: %s is none of %s" % (format, " ".join(synthetic.FORMATS)))
    threads = common.numbers("THREADS", "2" if short else "1 2")
    repetitions = int(common.setting("REPETITIONS", "3" if short else "5"))
    llama = llamacpp.Llama(os.path.join(cache, "llama"), common.setting("LLAMA_CPU", None))
    floors = common.Floors(os.path.join(cache, "bin", "floors"), threads)
    common.describe()
    print(llama.describe())
    if common.setting("PEAKS", "0" if short else "1") == "1":
        common.peaks()
    os.makedirs(os.path.join(cache, "models"), exist_ok=True)
    list = tests(short)
    print("tokens per second, medians of %d turns; the range is that of fucina's turns over llama.cpp's median\n" % repetitions)
    common.head("format", "threads", "test", "llama.cpp", "fucina", "ratio", "range")
    for format in formats:
        path = os.path.join(cache, "models", "synthetic-%s.gguf" % format)
        if not os.path.exists(path):
            synthetic.write(llama.base, path, format)
        for n in threads:
            comparison = Comparison(llama, os.path.join(cache, "bin", "fucina"), path, n)
            tell(format, comparison, list, comparison.run(list, repetitions, floors), floors)
    print()
    for note in NOTES:
        print(note)
    floors.tell()
    common.load()


main()
