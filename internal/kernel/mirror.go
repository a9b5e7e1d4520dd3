package kernel

import "unsafe"

// mirror copies the elements of rows [i0, i1) and columns [j0, j1) that lie below the diagonal of c to their places above it.
func mirror[T real](ks *kernels[T], c []T, ldc, i0, i1, j0, j1 int) {
	size := int(unsafe.Sizeof(*new(T)))
	kind := F32
	if size == 8 {
		kind = kindF64
	}
	transpose := ks.transpose[kind]
	for i := i0; i < i1; i += max(ks.group, 1) {
		rows, from := min(ks.group, i1-i), j0
		if transpose != nil && rows == ks.group { // whole square blocks below the diagonal
			if chunks := (min(i, j1) - j0) / ks.group; chunks > 0 {
				transpose(&c[j0*ldc+i], ldc*size, (*byte)(unsafe.Pointer(&c[i*ldc+j0])), ldc*size, rows, chunks)
				from += chunks * ks.group
			}
		}
		for r := i; r < min(i1, i+max(ks.group, 1)); r++ {
			for s := from; s < min(r, j1); s++ {
				c[s*ldc+r] = c[r*ldc+s]
			}
		}
	}
}
