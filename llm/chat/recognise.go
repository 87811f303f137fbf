package chat

import (
	"cmp"
	"regexp"
	"strings"
)

// Recognise returns the template whose program is text, as found in a model file under
// tokenizer.chat_template, and whether it is one that this package has. If text is a name
// of [Names], Recognise returns what [Named] does.
//
// The program is not run. Its framing is known by its marks, and what it does to
// contents by the spellings that programs in use have for that; the package comment
// lists both. What a program computes otherwise, such as the date of today, is left out.
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

// variants holds what programs do beyond the template of their name, by the beginning
// of that name.
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

// The text of a string literal, by its quotes.
const (
	single = `((?:[^'\\]|\\.)*)`
	double = `((?:[^"\\]|\\.)*)`
)

var (
	// A whole turn of the system in one literal.
	systemTurn = regexp.MustCompile(`(?s)%\}<\|im_start\|>system\n([^{]*?)<\|im_end\|>|` +
		`'<\|im_start\|>system(?:\\n|\n)` + single + `<\|im_end\|>(?:\\n|\n)?'` +
		`|"<\|im_start\|>system(?:\\n|\n)` + double + `<\|im_end\|>(?:\\n|\n)?"`)
	// Statements that set a system message to a literal and nothing else.
	setSystem    = regexp.MustCompile(`(?s)\{%-?\s*set\s+(?:default_)?system_(?:message|prompt)\s*=\s*(?:'` + single + `'|"` + double + `")\s*-?%\}`)
	emptyMessage = regexp.MustCompile(`set\s+system_message\s*=\s*(?:''|"")\s*-?%\}`)
	takeSystem   = regexp.MustCompile(`set\s+(?:first_user_prefix|system_message)\s*=\s*messages\[0\]\[['"]content['"]\]\s*(?:\+|-?%\})`)
	setDate      = regexp.MustCompile(`set\s+date_string\s*=\s*(?:'` + single + `'|"` + double + `")`)

	// What is left of an answer behind its thoughts, and how that is trimmed.
	splitThoughts = regexp.MustCompile(`split\(\s*['"]</think>['"]\s*\)\s*(?:\[-1\]|\|\s*last\b)\s*\)?\s*(\.l?strip\([^)]*\)|\|\s*trim\b)?`)
	// Thoughts that are written in front of an answer.
	writeThoughts = regexp.MustCompile(`<think>(?:\\n|\n)*['"]\s*[+~]\s*[\w.\[\]'"]*(?:reasoning|think)`)
	// An empty block in front of an answer.
	blankThoughts = regexp.MustCompile(`['"]<think></think>['"]\s*[+~]`)
	// A comparison of an answer's place with that of the last user message.
	recentOnly = regexp.MustCompile(`loop\.index0?\s*[<>]`)
	// Programs that write thoughts unless they are told not to.
	keepThoughts = regexp.MustCompile(`preserve_thinking\s+is\s+(?:undefined|not\s+defined)\s+or\b`)

	trimContent = regexp.MustCompile(`\bcontent['"\]]*(?:,\s*\w+\))?\s*(?:\|\s*trim\b|\.strip\(\))`)
	openThought = regexp.MustCompile(`assistant(?:\\n|\n)(<think>[^'"]*)['"]`)
	thought     = regexp.MustCompile(`['"](<think>[^'"]*)['"]`)
	joinSystem  = regexp.MustCompile(`<</SYS>>(?:\\n|\n)+['"]\s*\+\s*message`)
	answerSpace = regexp.MustCompile(`['"] ['"]\s*\+\s*[^+]+\+\s*['"] ['"]\s*\+\s*eos_token`)
)

// quoted returns the text of a literal, which is the only group of a match that is not
// empty.
func quoted(groups []string) string {
	for _, g := range groups[1:] {
		if g != "" {
			return escapes.Replace(g)
		}
	}
	return ""
}

// escapes are those of string literals.
var escapes = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "\r", `\\`, `\`, `\'`, `'`, `\"`, `"`)

// defaultSystem finds the system message that a program gives to a conversation without
// one: a whole turn in one literal, or a literal that a variable is set to.
func defaultSystem(t *Template, program string) {
	if strings.Contains(program, "elif false == true") {
		return // the statement that sets the message is never reached
	}
	if m := setSystem.FindStringSubmatch(program); m != nil {
		t.System = quoted(m)
	}
	if m := systemTurn.FindStringSubmatch(program); m != nil {
		// The first group is text outside of literals, where nothing is escaped.
		t.System = cmp.Or(m[1], quoted(m))
	}
}

// thoughts finds what a program does to the thoughts of earlier answers.
func thoughts(t *Template, program string) {
	split := splitThoughts.FindStringSubmatch(program)
	writes := len(writeThoughts.FindAllString(program, 2))
	switch {
	case blankThoughts.MatchString(program):
		t.Thoughts = ThoughtsBlanked
		t.Trim = 0 // what is trimmed there is the answer with its block
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

// trimmed finds whether a program trims contents: of all roles or of none.
func trimmed(t *Template, program string) {
	t.Trim = 0
	if trimContent.MatchString(program) {
		t.Trim = AllRoles
	}
}

// opening finds the block of thoughts that a program opens an answer with. If a program
// has a branch for enable_thinking, opening takes the branch in which it is not defined.
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

// emptySystem finds that there is a turn of the system where there is no system message:
// a variable is then set to an empty text, and asked only whether it is set.
func emptySystem(t *Template, program string) {
	t.SystemTurn = emptyMessage.MatchString(program) && strings.Contains(program, "if system_message is defined %}")
}

// untrimmedSystem finds that the system message is taken as it is, by programs that trim
// other contents.
func untrimmedSystem(t *Template, program string) {
	if takeSystem.MatchString(program) {
		t.Trim &^= SystemRole
	}
}

// spacedAnswers finds the spaces around answers, and the tokens in front of later turns,
// that the programs of Llama 2 have and those of the first Mistral have not. It also
// finds that the first user message is trimmed behind the system message.
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

// knowledgeDate finds the dates that Llama 3.1 and later have in front of the system
// message: that of today is the one which the program has for when it is given none.
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

// systemLast finds that the system message goes into the last user message.
func systemLast(t *Template, program string) {
	t.SystemLast = strings.Contains(program, "loop.last and system_message is defined")
}
