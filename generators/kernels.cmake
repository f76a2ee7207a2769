# THE list: every kernel that Halyard ships. The library's dispatch table, the tests and the bench are derived from it.
#
#   halyard_kernel(<pairing> <dtype> <place> <target> <steps> [<target> <steps> ...])
#     pairing  half | interleaved | half_to_interleaved | interleaved_to_half | strided (any layout; the last resort)
#     dtype    f32 | f16 | bf16 (half and interleaved: packed, two neighbours to a word)
#     place    out_of_place | in_place | non_temporal (out of place past the caches, for large outputs)
#     steps    the schedule's numbers, FIXED/ANY[/VECTOR], of strided ANY alone: see Steps in schedule.h
# The kernel's name is halyard_rotate_<pairing>_<dtype>[_in_place | _non_temporal]_<target>.

# The legal values of the schedules' numbers: what ./run tune tries, and what a tuned schedule may hold. A kernel has
# those that its generator is told.
#   halyard_parameter(<name> <loops> <limit> <values>)
#     loops    a word: numbers of the same loops are tuned together, and after those of others
#     limit    another number that this one never exceeds; or none
# past_caches_mib is for the runtime and not for the generator: from this much output on, kernels store past the caches.
halyard_parameter(elements_per_step     known_sizes none              4 8 16 32 64 128)
halyard_parameter(elements_per_vector   known_sizes elements_per_step 4 8 16 32 64)
halyard_parameter(heads_per_step        all_sizes   none              1 2 4)
halyard_parameter(hoist_rows            all_sizes   none              0 1)
halyard_parameter(swap_members          all_sizes   none              0 1)
halyard_parameter(elements_per_step_any any_size    none              4 8 16 32)
halyard_parameter(past_caches_mib       past_caches none              8 16 32 64 128)
halyard_parameter(pairs_per_step        rows        none              4 8 16 32)
halyard_parameter(element_threads       blocks      none              4 8 16 32)
halyard_parameter(head_threads          blocks      none              1 2 4 8 16 32)
halyard_parameter(heads_per_thread      blocks      none              1 2 4 8 16)
halyard_parameter(few_tokens            few         none              0 16 64 256 1024)

# Name, Halide's architecture and features, from the worst to the best: dispatch takes the best that a machine has.
halyard_target(x86_sse41  x86-64 sse41)
halyard_target(x86_avx2   x86-64 sse41-avx-f16c-fma-avx2)
halyard_target(x86_avx512 x86-64 sse41-avx-f16c-fma-avx2-avx512-avx512_skylake)
# arm_fp16 is for the conversions FCVTL and FCVTN, which ARMv8.0 has; all arithmetic is f32.
halyard_target(arm_neon   arm-64 arm_fp16)

halyard_kernel(half                f32  non_temporal                     x86_avx2 128/16/8 x86_avx512 64/16)
halyard_kernel(half                f32  out_of_place x86_sse41 128/8/4 x86_avx2 128/16/8 x86_avx512 64/16 arm_neon 16/4)
halyard_kernel(half                f32  in_place     x86_sse41 128/8/4 x86_avx2 128/16/8 x86_avx512 64/16 arm_neon 16/4)
halyard_kernel(half                f16  non_temporal                     x86_avx2 128/8/16)
halyard_kernel(half                f16  out_of_place x86_sse41 8/8     x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 16/8)
halyard_kernel(half                f16  in_place     x86_sse41 8/8     x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 16/8)
halyard_kernel(half                bf16 out_of_place x86_sse41 128/8/8 x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 8/4)
halyard_kernel(half                bf16 in_place     x86_sse41 128/8/8 x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 8/4)

halyard_kernel(interleaved         f32  non_temporal                     x86_avx2 128/8/8  x86_avx512 64/8)
halyard_kernel(interleaved         f32  out_of_place x86_sse41 4/4     x86_avx2 128/8/8  x86_avx512 64/8  arm_neon 16/4)
halyard_kernel(interleaved         f32  in_place     x86_sse41 4/4     x86_avx2 128/8/8  x86_avx512 64/8  arm_neon 16/4)
halyard_kernel(interleaved         f16  out_of_place x86_sse41 4/4     x86_avx2 128/8/16 x86_avx512 16/8  arm_neon 16/8)
halyard_kernel(interleaved         f16  in_place     x86_sse41 4/4     x86_avx2 128/8/16 x86_avx512 16/8  arm_neon 16/8)
halyard_kernel(interleaved         bf16 out_of_place x86_sse41 128/8/8 x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 16/4)
halyard_kernel(interleaved         bf16 in_place     x86_sse41 128/8/8 x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 16/4)

halyard_kernel(half_to_interleaved f32  non_temporal                     x86_avx2 128/8/8)
halyard_kernel(half_to_interleaved f32  out_of_place x86_sse41 128/8/4 x86_avx2 128/8/8  x86_avx512 16/16 arm_neon 16/4)
halyard_kernel(half_to_interleaved f16  out_of_place x86_sse41 8/8     x86_avx2 128/8/8  x86_avx512 16/16 arm_neon 16/8)
halyard_kernel(half_to_interleaved bf16 out_of_place x86_sse41 128/8/8 x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 16/8)
halyard_kernel(interleaved_to_half f32  non_temporal                     x86_avx2 128/8/8)
halyard_kernel(interleaved_to_half f32  out_of_place x86_sse41 128/8/8 x86_avx2 128/8/8  x86_avx512 16/16 arm_neon 16/4)
halyard_kernel(interleaved_to_half f16  out_of_place x86_sse41 8/8     x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 16/8)
halyard_kernel(interleaved_to_half bf16 out_of_place x86_sse41 128/8/8 x86_avx2 128/8/16 x86_avx512 16/16 arm_neon 16/8)

halyard_kernel(strided             f32  out_of_place x86_sse41 4       x86_avx2 4        x86_avx512 4     arm_neon 4)
halyard_kernel(strided             f32  in_place     x86_sse41 4       x86_avx2 4        x86_avx512 4     arm_neon 4)
halyard_kernel(strided             f16  out_of_place x86_sse41 4       x86_avx2 4        x86_avx512 4     arm_neon 4)
halyard_kernel(strided             f16  in_place     x86_sse41 4       x86_avx2 4        x86_avx512 4     arm_neon 4)
halyard_kernel(strided             bf16 out_of_place x86_sse41 4       x86_avx2 4        x86_avx512 4     arm_neon 4)
halyard_kernel(strided             bf16 in_place     x86_sse41 4       x86_avx2 4        x86_avx512 4     arm_neon 4)

# What makes rows of cos and sin without a dense table: halyard_rows_phase_<target> and halyard_rows_factored_<target>.
#   halyard_row_kernels(<target> <pairs per step> [<target> <pairs per step> ...])
halyard_row_kernels(x86_sse41 4  x86_avx2 8  x86_avx512 16  arm_neon 4)

# Kernels of GPUs, whose numbers are in kernel_list.cmake: half and interleaved go by 128 bits, strided takes any layout.
# They find positions and angles on the device, angles in a table or by fixed-point phase.
#   halyard_gpu_kernel(<pairing> <dtype> <place> <angles>): for every target, as
#       halyard_rotate_<pairing>_<dtype>[_in_place][_phase]_<target>
#   halyard_gpu_helpers(): what else a GPU does, halyard_check_positions_<target> and halyard_copy_<bits>_<target>
halyard_gpu_target(cuda_sm80 cuda-cuda_capability_80)
halyard_gpu_target(opencl    opencl)
foreach(pairing half interleaved strided)
    foreach(dtype f32 f16 bf16)
        foreach(place out_of_place in_place)
            halyard_gpu_kernel(${pairing} ${dtype} ${place} table)
            halyard_gpu_kernel(${pairing} ${dtype} ${place} phase)
        endforeach()
    endforeach()
endforeach()
halyard_gpu_helpers()

# What ./run emit can emit for: Halide's architecture and system; then what comes of it, and is checked to: the objects'
# format (and for Apple's systems which one), their suffix, and the library's name.
halyard_triple(x86-64-linux   elf64-x86-64                 .o   libhalyard_kernels.a)
halyard_triple(x86-64-osx     "Mach-O 64-bit x86-64 macos" .o   libhalyard_kernels.a)
halyard_triple(x86-64-windows COFF-x86-64                  .obj halyard_kernels.lib)
halyard_triple(arm-64-linux   elf64-littleaarch64          .o   libhalyard_kernels.a)
halyard_triple(arm-64-android elf64-littleaarch64          .o   libhalyard_kernels.a)
halyard_triple(arm-64-osx     "Mach-O arm64 macos"         .o   libhalyard_kernels.a)
halyard_triple(arm-64-ios     "Mach-O arm64 ios"           .o   libhalyard_kernels.a)
halyard_triple(arm-64-windows COFF-ARM64                   .obj halyard_kernels.lib)
