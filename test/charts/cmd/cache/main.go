// Command cache prints the folder in which tests look for the components' charts.
package main

import (
	"fmt"
	"os"

	"github.com/pipeops/pipeops-vm-agent/test/charts"
)

func main() {
	directory, err := charts.Cache()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cache:", err)
		os.Exit(1)
	}
	fmt.Println(directory)
}
