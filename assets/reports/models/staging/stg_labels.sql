select id, dataset, language, label, holds, licence, instruction, origin from {{ source('lineage', 'labels') }}
