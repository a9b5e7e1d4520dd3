package kernel

// Features names the kernel set in use: "avx512", "avx2" or "generic".
func Features() string { return "generic" }
