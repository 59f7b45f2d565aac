select id, dataset, language, label, holds, license, instruction, origin from {{ source('lineage', 'labels') }}
