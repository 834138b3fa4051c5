package web

import (
	"regexp"
	"strings"
)

// Levels of a line. One without a known level has none.
const (
	levelDebug   = "debug"
	levelInfo    = "info"
	levelWarning = "warning"
	levelError   = "error"
)

// severity orders the levels.
var severity = map[string]int{"": 0, levelDebug: 0, levelInfo: 1, levelWarning: 2, levelError: 3}

var (
	// levelField is the level of a line in JSON or as key=value.
	levelField = regexp.MustCompile(`(?i)\b(?:level|lvl|severity|loglevel)"?\s*[:=]\s*"?(\w+)`)
	// levelOfKlog is the level of Kubernetes' own programs.
	levelOfKlog = regexp.MustCompile(`^([IWEF])\d{4} `)
	// levelWord is a level in capital letters.
	levelWord = regexp.MustCompile(`\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERR|ERROR|CRIT|CRITICAL|ALERT|EMERG|FATAL|PANIC)\b`)
	// levelPrefix is a level before a colon, or in brackets.
	levelPrefix = regexp.MustCompile(`(?i)(?:^|\s)\[?(debug|info|notice|warn|warning|err|error|crit|critical|alert|emerg|fatal|panic)[]:]`)
	// traceback begins with an error of the usual languages.
	traceback = regexp.MustCompile(`^(?:Traceback \(|Exception in thread |\w[\w.]*(?:Error|Exception)\b)`)
)

// maxLevelAt is how far into a line its level is looked for.
const maxLevelAt = 200

// levelNames are the names of levels, and their numbers in pino and bunyan.
var levelNames = map[string]string{
	"trace": levelDebug, "debug": levelDebug, "10": levelDebug, "20": levelDebug,
	"i": levelInfo, "info": levelInfo, "notice": levelInfo, "30": levelInfo,
	"w": levelWarning, "warn": levelWarning, "warning": levelWarning, "40": levelWarning,
	"e": levelError, "err": levelError, "error": levelError, "crit": levelError, "critical": levelError, "alert": levelError,
	"emerg": levelError, "f": levelError, "fatal": levelError, "panic": levelError, "50": levelError, "60": levelError,
}

// Level returns the level of a line: debug, info, warning or error, or empty where it names none.
func (l Line) Level() string {
	text := l.Line[:min(len(l.Line), maxLevelAt)]
	for _, how := range []*regexp.Regexp{levelField, levelOfKlog, levelWord, levelPrefix} {
		if found := how.FindStringSubmatch(text); found != nil {
			if level := levelNames[strings.ToLower(found[1])]; level != "" {
				return level
			}
		}
	}
	if traceback.MatchString(text) {
		return levelError
	}
	return ""
}
