// Command fucina runs language models from GGUF files and looks into them.
//
//	fucina run -m MODEL -p PROMPT [-n N] [-t THREADS] [-c CONTEXT] [--temp T] [--seed S]
//	fucina run -m MODEL --chat [--chat-template NAME] [-sys MESSAGE]
//	fucina quantize [--pure] [--imatrix FILE] IN.gguf OUT.gguf TYPE
//	fucina tokenize -m MODEL -p TEXT [--ids] [--no-bos] [--parse-special]
//	fucina perplexity -m MODEL -f FILE [-c CONTEXT] [-t THREADS]
//	fucina bench -m MODEL [-p 512] [-n 48] [-t THREADS] [-r 3]
//	fucina inspect [-m] FILE
//	fucina devices
//	fucina version
//	fucina completion bash|zsh|fish
//	fucina help [COMMAND]
//
// Flags have llama.cpp's names, short and long, and may be written with one dash or
// two; fucina help run says how it differs. Flags of llama.cpp that have nothing to act
// on here are accepted and ignored, with a note on standard error. Of a number that says
// how much of something, -1 is the default. An error about a mistyped name suggests the
// nearest one. Results go to standard output, as text
// or, with -o json, as one JSON value on one line, where a text that is no valid UTF-8
// is the array of its bytes instead of a string; everything else goes to standard
// error. FUCINA_EXACT=1 and FUCINA_PROVIDER stand for --exact and --provider.
//
// The exit status is 0; 1 after an error, which is told in one line; 2 for a
// wrong command line, told likewise; and 128 and its number after a signal: 130 after an
// interrupt, 143 after SIGTERM, 129 where the terminal went, 141 where the reader of the
// output did. Each ends a text cleanly and keeps what was printed; a second one kills. To a
// chat with a person, an interrupt during an answer ends the answer alone.
//
// A terminal gets control characters of texts, names and metadata escaped.
package main
