package chat

import (
	"cmp"
	"regexp"
	"strings"
)

// Recognise returns the template whose program is text, and whether this package has that
// template. text is the value of tokenizer.chat_template in a model file. If text is a name
// of [Names], Recognise returns the template of [Named].
//
// Recognise does not run the program. Certain strings in it tell its framing and the changes
// that it makes to contents; the package comment lists both. Recognise leaves out texts that
// a program computes, such as today's date.
func Recognise(text string) (Template, bool) {
	name, ok := Detect(text)
	if !ok {
		return Template{}, false
	}
	t := templates[name]
	t.Name = name
	if name == text {
		return t, true
	}
	for _, v := range variants {
		if v.of == "" || strings.HasPrefix(name, v.of) {
			v.apply(&t, text)
		}
	}
	return t, true
}

// variants has functions that find what a program does beyond the template of its name. of is
// the beginning of the names that a function applies to.
var variants = []struct {
	of    string
	apply func(t *Template, program string)
}{
	{"", defaultSystem},
	{"", emptySystem},
	{"chatml", trimmed},
	{"chatml", opening},
	{"gemma", trimmed},
	{"llama", trimmed},
	{"llama2", spacedAnswers},
	{"llama3", knowledgeDate},
	{"phi", trimmed},
	{"", untrimmedSystem},
	{"", thoughts},
	{"mistral", systemLast},
}

// Expressions for the text of a string literal, by its quotes.
const (
	single = `((?:[^'\\]|\\.)*)`
	double = `((?:[^"\\]|\\.)*)`
)

var (
	// systemTurn matches a whole turn of the system in one literal.
	systemTurn = regexp.MustCompile(`(?s)%\}<\|im_start\|>system\n([^{]*?)<\|im_end\|>|` +
		`'<\|im_start\|>system(?:\\n|\n)` + single + `<\|im_end\|>(?:\\n|\n)?'` +
		`|"<\|im_start\|>system(?:\\n|\n)` + double + `<\|im_end\|>(?:\\n|\n)?"`)
	// setSystem matches a statement that sets a system message to one literal.
	setSystem    = regexp.MustCompile(`(?s)\{%-?\s*set\s+(?:default_)?system_(?:message|prompt)\s*=\s*(?:'` + single + `'|"` + double + `")\s*-?%\}`)
	emptyMessage = regexp.MustCompile(`set\s+system_message\s*=\s*(?:''|"")\s*-?%\}`)
	takeSystem   = regexp.MustCompile(`set\s+(?:first_user_prefix|system_message)\s*=\s*messages\[0\]\[['"]content['"]\]\s*(?:\+|-?%\})`)
	setDate      = regexp.MustCompile(`set\s+date_string\s*=\s*(?:'` + single + `'|"` + double + `")`)

	// splitThoughts matches the expression for an answer without its thoughts, with the
	// trimming of the result.
	splitThoughts = regexp.MustCompile(`split\(\s*['"]</think>['"]\s*\)\s*(?:\[-1\]|\|\s*last\b)\s*\)?\s*(\.l?strip\([^)]*\)|\|\s*trim\b)?`)
	// writeThoughts matches the expression that writes thoughts in front of an answer.
	writeThoughts = regexp.MustCompile(`<think>(?:\\n|\n)*['"]\s*[+~]\s*[\w.\[\]'"]*(?:reasoning|think)`)
	// blankThoughts matches an empty block in front of an answer.
	blankThoughts = regexp.MustCompile(`['"]<think></think>['"]\s*[+~]`)
	// recentOnly matches a comparison with the index of the last user message.
	recentOnly = regexp.MustCompile(`loop\.index0?\s*[<>]`)
	// keepThoughts matches a condition that keeps thoughts unless a variable forbids it.
	keepThoughts = regexp.MustCompile(`preserve_thinking\s+is\s+(?:undefined|not\s+defined)\s+or\b`)

	trimContent = regexp.MustCompile(`\bcontent['"\]]*(?:,\s*\w+\))?\s*(?:\|\s*trim\b|\.strip\(\))`)
	openThought = regexp.MustCompile(`assistant(?:\\n|\n)(<think>[^'"]*)['"]`)
	thought     = regexp.MustCompile(`['"](<think>[^'"]*)['"]`)
	joinSystem  = regexp.MustCompile(`<</SYS>>(?:\\n|\n)+['"]\s*\+\s*message`)
	answerSpace = regexp.MustCompile(`['"] ['"]\s*\+\s*[^+]+\+\s*['"] ['"]\s*\+\s*eos_token`)
)

// quoted returns the text of a literal. It is the only group of a match that is not empty.
func quoted(groups []string) string {
	for _, g := range groups[1:] {
		if g != "" {
			return escapes.Replace(g)
		}
	}
	return ""
}

// escapes replaces the escapes of string literals.
var escapes = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "\r", `\\`, `\`, `\'`, `'`, `\"`, `"`)

// defaultSystem finds the system message that a program adds to a conversation without one.
// It is a whole turn in one literal, or a literal that is the value of a variable.
func defaultSystem(t *Template, program string) {
	if strings.Contains(program, "elif false == true") {
		return // the program never reaches the statement that sets the message
	}
	if m := setSystem.FindStringSubmatch(program); m != nil {
		t.System = quoted(m)
	}
	if m := systemTurn.FindStringSubmatch(program); m != nil {
		// The first group is text outside of literals, which has no escapes.
		t.System = cmp.Or(m[1], quoted(m))
	}
}

// thoughts finds what a program does to the thoughts of answers.
func thoughts(t *Template, program string) {
	split := splitThoughts.FindStringSubmatch(program)
	writes := len(writeThoughts.FindAllString(program, 2))
	switch {
	case blankThoughts.MatchString(program):
		t.Thoughts = ThoughtsBlanked
		t.Trim = 0 // the program trims the answer with its block, not the content
	case writes > 1, writes == 1 && (!recentOnly.MatchString(program) || keepThoughts.MatchString(program)):
		t.Thoughts = ThoughtsWritten
	case writes == 1:
		t.Thoughts = ThoughtsCutEarlier
	case split != nil:
		t.Thoughts = ThoughtsCut
	}
	if split == nil {
		return
	}
	switch how := strings.ReplaceAll(split[1], " ", ""); {
	case how == "":
		t.cut = func(s string) string { return s }
	case how == "|trim", how == ".strip()":
		t.cut = trim
	case how == ".lstrip()":
		t.cut = func(s string) string { return strings.TrimLeft(s, space) }
	}
}

// trimmed finds whether a program trims contents, for all roles or for none.
func trimmed(t *Template, program string) {
	t.Trim = 0
	if trimContent.MatchString(program) {
		t.Trim = AllRoles
	}
}

// opening finds the block of thoughts with which a program opens an answer. If the program has
// a branch for enable_thinking, opening uses the branch in which it is not defined.
func opening(t *Template, program string) {
	i := strings.LastIndex(program, "add_generation_prompt")
	if i < 0 {
		return
	}
	program = program[i:]
	find := openThought
	if i := strings.Index(program, "enable_thinking is defined and"); i >= 0 {
		_, program, _ = strings.Cut(program[i:], "else")
		find = thought
	}
	if m := find.FindStringSubmatch(program); m != nil {
		t.Opening = quoted(m)
	}
}

// emptySystem finds whether a program writes a turn of the system without a system message.
// Such a program sets a variable to an empty text, and then tests only whether it is defined.
func emptySystem(t *Template, program string) {
	t.SystemTurn = emptyMessage.MatchString(program) && strings.Contains(program, "if system_message is defined %}")
}

// untrimmedSystem finds whether a program that trims other contents leaves the system message
// unchanged.
func untrimmedSystem(t *Template, program string) {
	if takeSystem.MatchString(program) {
		t.Trim &^= SystemRole
	}
}

// spacedAnswers finds the spaces around answers and the tokens in front of later turns. The
// programs of Llama 2 have them, and those of the first Mistral do not. It also finds whether
// the first user message is trimmed together with the system message.
func spacedAnswers(t *Template, program string) {
	t.joined = joinSystem.MatchString(program)
	if !answerSpace.MatchString(program) {
		return
	}
	t.frame = llama2{
		sys:   strings.Contains(program, "<<SYS>>"),
		bos:   strings.Contains(program, "bos_token + '[INST]"),
		space: " ",
	}.format
}

// knowledgeDate finds the dates that Llama 3.1 and later models have in front of the system
// message. Today's date is the fixed date that the program uses if it gets none.
func knowledgeDate(t *Template, program string) {
	const key = "Cutting Knowledge Date: "
	_, after, ok := strings.Cut(program, key)
	date := setDate.FindStringSubmatch(program)
	if !ok || date == nil || !strings.Contains(after, "Today Date: ") {
		return
	}
	known, _, ok := strings.Cut(after, `\n`)
	if ok && !strings.ContainsAny(known, `"'{}`) {
		t.Preface = key + known + "\nToday Date: " + quoted(date) + "\n\n"
	}
}

// systemLast finds whether the system message is a part of the last user message.
func systemLast(t *Template, program string) {
	t.SystemLast = strings.Contains(program, "loop.last and system_message is defined")
}
