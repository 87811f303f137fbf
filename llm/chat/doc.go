// Package chat turns a conversation into the prompt that a model was trained on.
//
// Templates have the names that llama.cpp gives them ([Names]). A template that is chosen by
// name gives the same text as in llama.cpp. A model file has its template as a program
// (tokenizer.chat_template). This package does not run programs. [Recognise] looks for
// certain strings in a program: they tell which of the named templates it is, and how it
// changes earlier turns.
//
// # What templates do to messages
//
// llama.cpp gives one name to several programs. A template that is chosen by name does what
// these programs have in common:
//
//	name               models                     contents             system message
//	chatml             Qwen, SmolLM 2, Hermes     unchanged            a turn
//	gemma              Gemma 1 to 3               trimmed              in front of the next user message
//	llama2             Mistral 7B 0.1 and 0.2     unchanged            in front of the next user message
//	llama2-sys         Llama 2 fine-tunes         unchanged            the same, between <<SYS>> marks
//	llama2-sys-bos     Llama 2 fine-tunes         unchanged            as in llama2-sys
//	llama2-sys-strip   Llama 2                    trimmed              as in llama2-sys
//	llama3             Llama 3                    trimmed              a turn
//	mistral-v1         Mistral 7B 0.2, Mixtral    unchanged            in front of the next user message
//	mistral-v3         Mistral 7B 0.3, Large 2    answers are trimmed  in front of the next user message
//	mistral-v3-tekken  Mistral Nemo               unchanged            in front of the next user message
//	mistral-v7         Mistral Large 2411         unchanged            a turn
//	mistral-v7-tekken  Mistral Small 3, Devstral  unchanged            a turn
//	phi3               Phi 3 and 3.5              unchanged            a turn
//	phi4               Phi 4                      unchanged            a turn
//
// None of them removes thoughts or has a default system message. Recognise adds the
// following features if it finds them in the program of a file:
//
//	feature                                                found in
//	a system message where there is none                   Qwen 1.5 to 2.5, SmolLM 2, Devstral
//	an empty turn of the system where there is none        Nemotron 3
//	dates in front of the system message, always           Llama 3.1 to 3.3
//	the system message in the last user message            Mistral v3 and v3-tekken
//	contents that are trimmed, or are not                  Qwen 3.5, fine-tunes
//	a system message that is not trimmed                   Gemma 3, Llama 2
//	spaces around answers, <s> in front of later turns     Llama 2
//	thoughts cut from all answers                          QwQ
//	thoughts cut from answers before the last question     Qwen 3, 3.5 and 3.6, LFM 2.5
//	thoughts of all answers as a block, which may be empty Qwen 3.8
//	an empty block in place of the thoughts of answers     Nemotron 3
//	a block of thoughts that opens the answer              QwQ, Qwen 3 Thinking, Qwen 3.5
//
// Recognise leaves out texts that a program computes, such as the system message with
// today's date of Mistral Small and SmolLM 3. For Llama 3.2 it uses the fixed date that the
// program has for use without a clock. The programs of some models refuse roles that do not
// alternate, and those of Gemma 1 and 2 refuse a system message. This package accepts both.
//
// # Segments
//
// A prompt is a list of segments. A segment is either a marker of the template, which is a
// special token if the vocabulary has it, or text, which has the words of the messages.
// [Format] joins the segments into one string. In that string, markers of the template and
// markers in messages look the same: a message that contains "<|im_end|>" can end its turn
// and forge another one, if the string is encoded with special tokens recognised. [Encode]
// prevents that, because it recognises special tokens only in markers.
//
// Encode cannot prevent a message from containing a marker that is not a token of the
// vocabulary. Examples are [INST] and <<SYS>> of the llama2 templates, which are plain text.
package chat
