// Package console is the control plane's pages for operators. A page reads and changes everything
// through the operator API, as the operator who has signed in. So roles, limits and the audit log
// are those of the API.
package console
