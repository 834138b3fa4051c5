module example.test/thing

go 1.26
