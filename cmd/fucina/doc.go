// Command fucina runs, inspects, quantizes and measures language models in GGUF files.
//
//	fucina run -m MODEL -p PROMPT [-n N] [-t THREADS] [-c CONTEXT] [--temp T] [--seed S]
//	fucina run -m MODEL --chat [--chat-template NAME] [-sys MESSAGE]
//	fucina run -m MODEL -f FILE --prompt-cache FILE [--prompt-cache-all] [--prompt-cache-ro]
//	fucina quantize [--pure] [--imatrix FILE] IN.gguf OUT.gguf TYPE
//	fucina tokenize -m MODEL -p TEXT [--ids] [--no-bos] [--parse-special]
//	fucina perplexity -m MODEL -f FILE [-c CONTEXT] [-t THREADS]
//	fucina bench -m MODEL [-p 512] [-n 48] [-d DEPTH] [-t THREADS] [-r 3]
//	fucina inspect [-m] FILE
//	fucina devices [-m MODEL [-c CONTEXT] [--cache-type TYPE]]
//	fucina version
//	fucina completion bash|zsh|fish
//	fucina help [COMMAND]
//
// Flags have the short and long names of llama.cpp, and may be written with one dash or
// two. "fucina help run" lists the differences. Flags of llama.cpp that have nothing to act
// on here are accepted and ignored, with a note on standard error. The value -1 of a count
// or a size means its default. An error about a mistyped name suggests the nearest name.
// FUCINA_EXACT=1 and FUCINA_PROVIDER have the effect of --exact and --provider.
//
// Results go to standard output, as text or, with -o json, as one JSON value on one
// line. In JSON, a text that is not valid UTF-8 is an array of its bytes instead of a
// string. Everything else goes to standard error. On a terminal, control characters of
// texts, names and metadata are escaped.
//
// The exit status is
//
//	0    after success
//	1    after an error; one line on standard error describes it
//	2    after a wrong command line; one line on standard error describes the error
//	129  after SIGHUP
//	130  after an interrupt
//	141  if standard output was closed
//	143  after SIGTERM
//
// A signal ends the command cleanly, and the text that was printed remains. A second signal
// kills the process. In a chat on a terminal, an interrupt during an answer ends the answer
// and not the program.
package main
