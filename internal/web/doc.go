// Package web is the kit from which all pages are built: the layout, the components, the style
// sheet and the scripts, sessions, and what protects a server of pages against other sites. It
// knows neither the agent nor the control plane.
//
// Templates hold no script and no style of their own, so the Content-Security-Policy allows
// neither. Everything a page loads is in the program.
package web
