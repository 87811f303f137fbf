// Package chat turns a conversation into the prompt that a model was trained on.
//
// Templates are known by the names that llama.cpp gives them ([Names]), and give the
// same text as there. A model file carries its template as a program
// (tokenizer.chat_template); programs are not run here: [Detect] recognises by its
// marks which of the named templates one is.
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
