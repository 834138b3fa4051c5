package cmdutil

import (
	"errors"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// SetQuota sets an amount of a quota, given as NAME=AMOUNT.
func SetQuota(q *runnerapi.NamespaceQuota, s string) error {
	name, amount, _ := strings.Cut(s, "=")
	switch {
	case amount == "":
	case name == "storage":
		q.Storage = amount
		return nil
	case name == "pods":
		n, err := strconv.ParseInt(amount, 10, 32)
		if err != nil || n < 0 {
			return errors.New("expected a number of pods")
		}
		pods := int32(n)
		q.Pods = &pods
		return nil
	case SetAmount(&q.Requests, &q.Limits, name, amount):
		return nil
	}
	return errors.New("expected cpu, memory, limits.cpu, limits.memory, pods or storage, as NAME=AMOUNT")
}

// SetAmount sets an amount of CPU or memory: a limit's if the name begins with "limits.". It
// reports false for another name, or no amount.
func SetAmount(requests, limits *runnerapi.ResourceAmounts, name, amount string) bool {
	of := requests
	if rest, ok := strings.CutPrefix(name, "limits."); ok {
		of, name = limits, rest
	}
	switch {
	case amount == "":
		return false
	case name == "cpu":
		of.CPU = amount
	case name == "memory":
		of.Memory = amount
	default:
		return false
	}
	return true
}
