package render

// Do is do.
var Do = do
