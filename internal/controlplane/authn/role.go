package authn

import "slices"

// The roles of operators. Each may do what the one before may.
const (
	RoleViewer   = "viewer"   // reads
	RoleOperator = "operator" // changes the fleet
	RoleAdmin    = "admin"    // also the CA, the operators and the releases
)

// Roles are the roles of operators, each of which includes those before it.
var Roles = []string{RoleViewer, RoleOperator, RoleAdmin}

// Includes reports whether a role includes another.
func Includes(role, other string) bool {
	has := slices.Index(Roles, role)
	return has >= 0 && has >= slices.Index(Roles, other)
}
