package humaproblem

import (
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const mismatch = "expected string to match pattern "

const (
	name   = "a-z, 0-9 and '-', with a letter or digit at both ends"
	dotted = "a-z, 0-9, '-' and '.', with a letter or digit at both ends and around each dot"
)

// patterns are those of the wires, in words: what has to be there instead.
var patterns = map[string]string{
	`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`:                                          name,
	`^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?$`:         "NAME or NAMESPACE/NAME",
	`^[a-z]([a-z0-9-]*[a-z0-9])?$`:                                             "a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit",
	`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`:        dotted,
	`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`:                                         dotted,
	`^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`: "a host name in lower case, such as shop.example.com or *.example.com",
	`^[a-z0-9]+$`:            "a-z and 0-9",
	`^[a-z0-9][a-z0-9.:-]*$`: "HOST or HOST:PORT in lower case",
	`^[A-Za-z]+$`:            "letters alone",
	`^[A-Za-z0-9_-]*$`:       "letters, digits, '_' and '-'",
	`^[A-Za-z0-9._-]+$`:      "letters, digits, '.', '_' and '-'",
	`^[A-Za-z0-9._:-]+$`:     "letters, digits, '.', '_', ':' and '-'",
	`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`:                                              "letters, digits, '.', '_' and '-', with a letter or digit at both ends",
	`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`:                                      "the value of a label",
	`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`: "the key of a label, such as example.com/tier",
	`^[A-Za-z0-9][A-Za-z0-9_.-]*$`:                                                            "letters, digits, '.', '_' and '-', beginning with a letter or digit",
	`^[A-Za-z_.-][A-Za-z0-9_.-]*$`:                                                            "letters, digits, '.', '_' and '-', not beginning with a digit",
	`^[A-Za-z][A-Za-z0-9_+/-]*$`:                                                              "the name of a time zone, such as Europe/Berlin",
	`^[^\s]+$`:                                                                                "something without spaces, such as registry.example.com/shop/web:1.4.2",
	`^/`:                                                                                      "a path that begins with /",
	`^/[^\s?#]*$`:                                                                             "a path that begins with /, without spaces, ? and #",
	`^(/[^/:\s]+)+$`:                                                                          "a path that begins with /, without spaces, colons and a / at its end",
	`^[0-9]+(\.[0-9]+)?m?$`:                                                                   "an amount of CPU, such as 250m, 0.5 or 2",
	`^[0-9]+(\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti)?$`:                                               "an amount of bytes, such as 128Mi or 1.5Gi",
	`^([0-9]{1,4}|[1-9]?[0-9]%|100%)$`:                                                        "a number or a percentage, such as 1 or 25%",
	`^([0-9]+(s|m|h))+$`:                                                                      "a time, such as 90s, 5m or 1h30m",
	problem.FieldPattern:                                                                      "a path such as ports[0].port",
	`^"[1-9][0-9]{0,17}"$`:                                                                    `a generation in quotes, such as "7"`,
	`^"[1-9][0-9]{0,8}"$`:                                                                     `a revision in quotes, such as "7"`,
	`^"[!#-~]{1,128}"$`:                                                                       `a digest in quotes, as the object has it`,
	`^[0-9a-f]{40}$`:                                                                          "all 40 digits of a commit",
	`^[0-9a-f]{7,40}$`:                                                                        "the first 7 to 40 digits of a commit",
	`^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[0-9A-Za-z*,/?-]+( +[0-9A-Za-z*,/?-]+){4})$`: "minute, hour, day of the month, month and weekday, such as 15 3 * * *, or @daily",
}

// inWords returns what a value has to be where huma shows a pattern.
func inWords(message string) string {
	pattern, is := strings.CutPrefix(message, mismatch)
	if words, known := patterns[pattern]; is && known {
		return "has to be " + words
	}
	return message
}
