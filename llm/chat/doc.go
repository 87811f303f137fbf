// Package chat turns a conversation into the prompt that a model was trained on.
//
// Templates are known by the names that llama.cpp gives them ([Names]), and by name they
// give the same text as there. A model file carries its template as a program
// (tokenizer.chat_template); programs are not run here: [Recognise] knows by its marks
// which of the named templates one is, and by its spellings what it does to earlier
// turns beyond that.
//
// # What templates do to messages
//
// By name, a template does what the programs that llama.cpp knows by that name have in
// common:
//
//	name               models                     contents             system message
//	chatml             Qwen, SmolLM 2, Hermes     as they are          a turn
//	gemma              Gemma 1 to 3               trimmed              in front of the next user message
//	llama2             Mistral 7B 0.1 and 0.2     as they are          in front of the next user message
//	llama2-sys         Llama 2 fine-tunes         as they are          likewise, between <<SYS>> marks
//	llama2-sys-bos     Llama 2 fine-tunes         as they are          likewise
//	llama2-sys-strip   Llama 2                    trimmed              likewise
//	llama3             Llama 3                    trimmed              a turn
//	mistral-v1         Mistral 7B 0.2, Mixtral    as they are          in front of the next user message
//	mistral-v3         Mistral 7B 0.3, Large 2    answers are trimmed  in front of the next user message
//	mistral-v3-tekken  Mistral Nemo               as they are          in front of the next user message
//	mistral-v7         Mistral Large 2411         as they are          a turn
//	mistral-v7-tekken  Mistral Small 3, Devstral  as they are          a turn
//	phi3               Phi 3 and 3.5              as they are          a turn
//	phi4               Phi 4                      as they are          a turn
//
// None has thoughts cut, nor a system message of its own. Recognise adds what it finds in
// the program of a file:
//
//	what                                                   as in
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
// What a program computes is left out: the system message that Mistral Small and SmolLM 3
// make with today's date. Llama 3.2 would have today's date too, and has here the fixed
// one that its program names for when there is no clock. Roles that do not alternate,
// and a system message for Gemma 1 and 2, are laid out where programs refuse them.
//
// # Segments
//
// A prompt is a list of segments: markers of the template, which are special tokens
// where the vocabulary has them, and text, which holds the words of the messages.
// [Format] joins them into one string. That string does not tell whose the markers
// in it are: a message that contains "<|im_end|>" ends its turn and can go on as
// anyone, if the string is encoded with special tokens recognised. [Encode] does not
// have this hole, because it recognises them in markers only.
//
// What Encode cannot prevent is text that looks like a marker in a vocabulary
// where the marker is no token: [INST] and <<SYS>> of the llama2 templates are
// plain text to model and user alike.
package chat
