package link

import "regexp"

// FRP's login answer has one free text for what went wrong. These two forms of it tell an
// agent whether trying again makes sense.
const (
	finalMark   = "refused (final): "
	passingMark = "refused (for now): "
)

// refusal finds our text inside the sentence that frpc puts around it.
var refusal = regexp.MustCompile(`refused \((final|for now)\): (.*?)(?:\. With loginFailExit|$)`)

// Refusal words a refused login.
func Refusal(reason string, final bool) string {
	if final {
		return finalMark + reason
	}
	return passingMark + reason
}

// ParseRefusal finds a Refusal in an error text.
func ParseRefusal(text string) (reason string, final, ok bool) {
	m := refusal.FindStringSubmatch(text)
	if m == nil {
		return "", false, false
	}
	return m[2], m[1] == "final", true
}
