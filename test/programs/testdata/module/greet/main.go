// Command greet is a program that a test runs.
package main

import (
	_ "embed"
	"fmt"

	"example.test/thing/greet/words"
)

//go:embed end.txt
var end string

func main() { fmt.Print(words.Greeting, end) }
