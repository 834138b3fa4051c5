package link

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// FRP's login answer has one free text for an error. These two forms of it show an agent whether a
// retry makes sense, and the end of the second one shows when.
const (
	finalMark   = "refused (final): "
	passingMark = "refused (for now): "
	withinMark  = "; try again within %d s"
)

// MaxRefusal is more than any has.
const MaxRefusal = 1 << 10

// refusal finds our text at the end of an error's.
var refusal = regexp.MustCompile(`refused \((final|for now)\): (.*?)(?:; try again within (\d{1,6}) s)?$`)

// Refused is a server's message to an agent that it does not admit, or no longer admits.
type Refused struct {
	Reason string
	Final  bool
	// Within is the time in which to try again, at a random moment so that not all come at
	// once; zero leaves it to the agent.
	Within time.Duration
}

// Refusal words a refused login.
func Refusal(reason string, final bool) string {
	if final {
		return finalMark + reason
	}
	return passingMark + reason
}

// Later returns the text of a temporary refusal with the time to return, to the second.
func Later(reason string, within time.Duration) string {
	return passingMark + reason + fmt.Sprintf(withinMark, max(1, int(within.Round(time.Second)/time.Second)))
}

// ParseRefusal finds a Refusal in an error text.
func ParseRefusal(text string) (Refused, bool) {
	m := refusal.FindStringSubmatch(text)
	if m == nil {
		return Refused{}, false
	}
	seconds, _ := strconv.Atoi(m[3]) // no digits: the time is missing
	return Refused{Reason: m[2], Final: m[1] == "final", Within: time.Duration(seconds) * time.Second}, true
}
