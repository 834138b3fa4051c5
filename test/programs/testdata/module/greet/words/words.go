// Package words is what the program imports.
package words

// Greeting is what it prints.
var Greeting = "hello"
