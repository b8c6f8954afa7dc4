/* Whether the processor supports the x86-64-v3 level (AVX2, FMA). The build asks too. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
static int sklseq_has_v3(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
        && __builtin_cpu_supports("bmi2");
}
#else
static int sklseq_has_v3(void) { return 0; }
#endif
